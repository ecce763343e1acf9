-- Purpose: mark objects of deleted jobs for removal, in a part of the table. What is locked is left for the next time.
-- Parameters: after (the last id of the part before), size (of the part).
-- Index: leasequeue_largeobject_pkey, leasequeue_job_pkey.
-- Pages: 20 + 14 a row
WITH page AS MATERIALIZED (
    SELECT id, seq FROM leasequeue_largeobject WHERE id > %(after)s::bigint ORDER BY id LIMIT %(size)s::int
), there AS MATERIALIZED (
    SELECT seq FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM page WHERE seq > 0))
), gone AS MATERIALIZED (
    SELECT id FROM leasequeue_largeobject
    WHERE id = ANY (ARRAY(SELECT id FROM page WHERE seq > 0 AND seq NOT IN (SELECT seq FROM there))) AND seq + 0 > 0
    FOR UPDATE SKIP LOCKED
), marked AS (
    UPDATE leasequeue_largeobject SET seq = 0 WHERE id = ANY (ARRAY(SELECT id FROM gone))
)
SELECT count(*), max(id) FROM page
