-- Purpose: of keys with more slots taken than their limit allows by now: jobs that are not claimed yet wait again, the
--   last ones first. The caller holds the keys (flow_lock.sql).
-- Parameters: keys (ids, each once), most (jobs of one key).
-- Index: leasequeue_limitkey_pkey, leasequeue_limit_pkey, leasequeue_member_taken, leasequeue_job_pkey,
--   leasequeue_ready_pkey, leasequeue_member_pkey. A locked job is passed over.
-- Pages: 50 + 60 a row
WITH keys AS MATERIALIZED (
    SELECT k.id, (SELECT count(*) FROM (SELECT FROM leasequeue_member m WHERE m.key = k.id AND m.taken LIMIT 10000) s)
        - l.concurrency AS over
    FROM unnest(%(keys)s::bigint[]) AS u(id)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_limitkey k WHERE k.id = u.id OFFSET 0) k
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_limit l WHERE l.id = k.limit_id
        AND l.concurrency IS NOT NULL OFFSET 0) l
), surplus AS MATERIALIZED (
    SELECT m.* FROM keys CROSS JOIN LATERAL (
        SELECT m.seq, m.queue_id, j.rank, COALESCE(j.position, j.seq) AS position, r.lane
        FROM leasequeue_member m
        CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = m.seq OFFSET 0) j
        CROSS JOIN LATERAL (SELECT r.lane FROM leasequeue_ready_at(m.queue_id, j.rank, COALESCE(j.position, j.seq)) r
            WHERE r.seq = m.seq OFFSET 0) r
        WHERE keys.over > 0 AND m.key = keys.id AND m.taken
        ORDER BY m.rank DESC, m.seq DESC LIMIT LEAST(GREATEST(keys.over, 0), %(most)s::int)) m
), places AS MATERIALIZED (
    SELECT p.place FROM surplus CROSS JOIN LATERAL (
        SELECT r.ctid AS place FROM leasequeue_ready r WHERE r.queue_id = surplus.queue_id AND r.rank = surplus.rank
            AND r.lane = surplus.lane
            AND r.position = surplus.position AND r.seq = surplus.seq FOR UPDATE SKIP LOCKED) p
), gone AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM places)) RETURNING *
), {held_again()}
SELECT count(*) FROM gone
