-- Purpose: jobs that were admitted for their rate and not claimed by the same transaction wait again, and what they
--   paid is given back. The caller holds their keys (flow_lock.sql).
-- Parameters: seqs, wait (ms until they are tried again), now.
-- Index: leasequeue_member_pkey, leasequeue_job_pkey, leasequeue_ready_pkey, leasequeue_limitkey_pkey,
--   leasequeue_limit_pkey.
-- Pages: 50 + 60 a row
WITH returned AS MATERIALIZED (
    SELECT m.seq, m.key, r.place
    FROM leasequeue_member m
    CROSS JOIN LATERAL (SELECT j.rank, COALESCE(j.position, j.seq) AS position FROM leasequeue_job j
        WHERE j.seq = m.seq OFFSET 0) j
    CROSS JOIN LATERAL (SELECT r.lane FROM leasequeue_ready_at(m.queue_id, j.rank, j.position) r
        WHERE r.seq = m.seq OFFSET 0) p
    CROSS JOIN LATERAL (SELECT r.ctid AS place FROM leasequeue_ready r WHERE r.queue_id = m.queue_id AND r.rank = j.rank
        AND r.lane = p.lane AND r.position = j.position AND r.seq = m.seq) r
    WHERE m.seq = ANY (%(seqs)s::bigint[])
), gone AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM returned)) RETURNING *
), {held_again()}, refunds AS MATERIALIZED (
    SELECT counted.key, counted.n, l.per_ms * interval '1 ms' / l.rate AS each
    FROM (SELECT returned.key, count(*)::int AS n FROM returned JOIN gone g ON g.seq = returned.seq
        GROUP BY returned.key) counted
    CROSS JOIN LATERAL (SELECT k.limit_id FROM leasequeue_limitkey k WHERE k.id = counted.key OFFSET 0) k
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_limit l WHERE l.id = k.limit_id AND l.rate IS NOT NULL OFFSET 0) l
), paid AS (
    -- The newest entry of its starts is of this transaction.
    UPDATE leasequeue_limitkey k SET paid_until = k.paid_until - refunds.n * refunds.each,
        counts = k.counts[:cardinality(k.counts) - 1] || k.counts[cardinality(k.counts)] - refunds.n
    FROM refunds WHERE k.id = refunds.key AND k.id = ANY (ARRAY(SELECT key FROM refunds))
), turns AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, key)
    SELECT DISTINCT g.queue_id, {now()} + %(wait)s::int * interval '1 ms', {turn.ADMIT}, returned.key
    FROM returned JOIN gone g ON g.seq = returned.seq
)
SELECT count(*) FROM gone
