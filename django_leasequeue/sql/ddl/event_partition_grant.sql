-- Purpose: give a role (or PUBLIC) a right on a partition that it has on the lease log.
-- Names: partition, grantee. Words: privilege.
GRANT {privilege} ON {partition} TO {grantee}
