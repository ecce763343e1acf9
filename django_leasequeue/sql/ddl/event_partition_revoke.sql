-- Purpose: take a right on a partition from a role (or PUBLIC) that does not have it on the lease log.
-- Names: partition, grantee. Words: privilege.
REVOKE {privilege} ON {partition} FROM {grantee} CASCADE
