-- Purpose: delete the rows of objects that were removed from their storage.
-- Parameters: ids.
-- Index: leasequeue_largeobject_pkey.
-- Pages: 20 + 6 a row
DELETE FROM leasequeue_largeobject WHERE id = ANY (%(ids)s::bigint[]) AND seq + 0 = 0 RETURNING id
