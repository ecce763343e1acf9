-- Purpose: bring new jobs under their limits: each becomes a member of its key. A job that is gone already is passed
--   over. The locks keep others from taking a job out, or moving it to the held ones, while its member is not there
--   yet: the turn for it would find none.
-- Parameters: project; arrays of equal length: seqs, names (of the limits), keys.
-- Index: leasequeue_limit_name, leasequeue_limitkey_key, leasequeue_delayed_pkey, leasequeue_member_pkey.
-- Pages: 20 + 24 a row
-- Returns: the keys' ids, each once; then null and the number of each node that waits for nothing but its own time
--   (flow_delay.sql).
WITH joining AS MATERIALIZED (
    SELECT i.seq, k.id AS key, d.queue_id, d.rank, d.available_at >= {HELD} AS waits
    FROM ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(names)s::text[]), unnest(%(keys)s::text[])) AS i(seq, name,
        key)
    CROSS JOIN LATERAL (SELECT l.id FROM leasequeue_limit l WHERE l.project = %(project)s::text
        AND l.name = i.name OFFSET 0) l
    CROSS JOIN LATERAL (SELECT k.id FROM leasequeue_limitkey k WHERE k.limit_id = l.id AND k.key = i.key OFFSET 0) k
    CROSS JOIN LATERAL (SELECT d.* FROM leasequeue_delayed d WHERE d.seq = i.seq FOR NO KEY UPDATE) d
), made AS (
    INSERT INTO leasequeue_member AS m (seq, queue_id, rank, key, taken, waits, state, pending, tolerant, place, label)
    SELECT seq, queue_id, rank, key, false, waits, {member.OPEN}, 0, false, 0, '' FROM joining ORDER BY joining.seq
    -- A node of a workflow waits for this as for a parent: it does not start before its limit is known.
    ON CONFLICT (seq) DO UPDATE SET key = excluded.key, pending = m.pending - (m.key IS NULL)::int,
        waits = excluded.waits AND m.pending = (m.key IS NULL)::int AND m.state = {member.OPEN}
            AND m.delay_ms IS NULL AND m.not_before IS NULL
    RETURNING m.seq, m.pending, m.state, m.delay_ms IS NOT NULL OR m.not_before IS NOT NULL AS timed
)
SELECT DISTINCT key, NULL::bigint FROM joining UNION ALL SELECT NULL, seq FROM made
WHERE timed AND pending = 0 AND state = {member.OPEN}
