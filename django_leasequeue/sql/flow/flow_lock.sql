-- Purpose: lock the workflows and the keys of jobs, and more keys, always in the same order: only who has them changes
--   members.
-- Parameters: seqs, keys (ids).
-- Index: leasequeue_member_pkey, leasequeue_workflow_pkey, leasequeue_limitkey_pkey.
-- Pages: 20 + 12 a row
WITH members AS MATERIALIZED (
    SELECT m.key, m.workflow FROM leasequeue_member m WHERE m.seq = ANY (%(seqs)s::bigint[])
), workflows AS MATERIALIZED (
    SELECT id FROM leasequeue_workflow WHERE id = ANY (ARRAY(SELECT DISTINCT workflow FROM members)) ORDER BY id
        FOR UPDATE
), keys AS MATERIALIZED (
    SELECT id FROM leasequeue_limitkey
    WHERE (SELECT count(*) FROM workflows) >= 0 AND id = ANY (ARRAY(SELECT key FROM members
        UNION SELECT unnest(%(keys)s::bigint[])))
    ORDER BY id FOR UPDATE
)
SELECT array_agg(id) FROM keys
