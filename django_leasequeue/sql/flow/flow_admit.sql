-- Purpose: jobs that wait for their key become ready, as many as its limit has room for; where its rate has none, a turn for the
--   time at which it has; where more than these may start, a turn at once. The caller holds the keys (flow_lock.sql).
-- Parameters: keys (ids), most (jobs of one key), now.
--   Jobs of a fair limit go to the back of their rank, so that keys take turns; others to their old place.
--   A rate is paid for: each start moves paid_until on by the interval of a start, and it may be ahead of now by the burst. Up to a
--   hundredth of the rate may start at once, and is taken off the rate, so that no window of per_ms has more than rate + burst.
-- Index: leasequeue_limitkey_pkey, leasequeue_limit_pkey, leasequeue_member_taken (a limit's concurrency, 10,000 at most),
--   leasequeue_member_waits, leasequeue_delayed_pkey, leasequeue_job_pkey.
-- Pages: 50 + 30 a row
-- Returns: the jobs' numbers; waking.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), l AS MATERIALIZED (
    SELECT k.id, k.paid_until AS paid, l.concurrency, l.fair, l.rate, 1 + l.burst + l.rate / 100 AS ahead,
        CASE WHEN l.rate IS NOT NULL THEN l.per_ms * interval '1 ms' / (l.rate - l.rate / 100) END AS each
    FROM unnest(%(keys)s::bigint[]) AS u(id)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_limitkey k WHERE k.id = u.id OFFSET 0) k
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_limit l WHERE l.id = k.limit_id OFFSET 0) l
), k AS MATERIALIZED (
    -- More than a full burst is paid for only if the limit has changed: that is forgotten.
    SELECT l.*, CASE WHEN l.paid > t.now + l.ahead * l.each THEN t.now + l.ahead * l.each ELSE l.paid END AS paid_until,
        CASE WHEN l.concurrency IS NOT NULL THEN l.concurrency - (
            SELECT count(*) FROM (SELECT FROM leasequeue_member m WHERE m.key = l.id AND m.taken LIMIT 10000) s) END AS slots,
        CASE WHEN l.rate IS NOT NULL THEN floor(extract(epoch FROM t.now + l.ahead * l.each
            - GREATEST(COALESCE(l.paid, t.now), t.now)) / extract(epoch FROM l.each)) END AS starts
    FROM l, t
), m AS MATERIALIZED (
    SELECT m.seq, m.queue_id, k.id AS key, CASE WHEN k.fair THEN nextval('leasequeue_job_seq_seq') END AS position
    FROM k CROSS JOIN LATERAL (
        SELECT m.seq, m.queue_id FROM leasequeue_member m WHERE m.key = k.id AND m.waits ORDER BY m.rank, m.seq
        LIMIT GREATEST(0, LEAST(%(most)s::int, k.slots, k.starts))) m
), gone AS (
    DELETE FROM leasequeue_delayed d WHERE d.seq = ANY (ARRAY(SELECT seq FROM m)) RETURNING d.*
), taken AS (
    -- Whatever the limit says now: it may get a concurrency later, which these count for.
    UPDATE leasequeue_member SET waits = false, taken = true WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
), missing AS (
    -- Cancelled before they were members: whoever looked then saw none. Once more, or they keep the others waiting for ever.
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
    SELECT m.queue_id, 'epoch', 2, array_agg(m.seq) FROM m WHERE m.seq <> ALL (ARRAY(SELECT seq FROM gone)) GROUP BY m.queue_id
), moved AS (
    UPDATE leasequeue_job j SET position = m.position FROM m
    WHERE j.seq = m.seq AND j.seq = ANY (ARRAY(SELECT seq FROM m WHERE position IS NOT NULL))
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries, expires_at,
        tag)
    SELECT g.queue_id, g.rank, CASE WHEN m.position IS NULL THEN 1 ELSE 2 END,
        COALESCE(m.position, (SELECT COALESCE(j.position, j.seq) FROM leasequeue_job j WHERE j.seq = g.seq)), g.seq, g.deliveries,
        g.flags, t.now, g.max_deliveries, g.expires_at, g.tag
    FROM gone g JOIN m ON m.seq = g.seq, t
), n AS MATERIALIZED (
    SELECT m.key, count(*) AS n FROM m JOIN gone g ON g.seq = m.seq GROUP BY m.key
), paid AS (
    UPDATE leasequeue_limitkey u SET paid_until = GREATEST(COALESCE(k.paid_until, t.now), t.now) + COALESCE(n.n, 0) * k.each
    FROM t CROSS JOIN k LEFT JOIN n ON n.key = k.id
    WHERE u.id = k.id AND u.id = ANY (ARRAY(SELECT id FROM k)) AND k.rate IS NOT NULL AND (n.n > 0 OR k.paid_until < k.paid)
), later AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, key)
    SELECT w.queue_id, COALESCE(GREATEST(COALESCE(k.paid_until, t.now), t.now) + (COALESCE(n.n, 0) + 1 - k.ahead) * k.each, t.now),
        3, k.id
    FROM k CROSS JOIN t LEFT JOIN n ON n.key = k.id CROSS JOIN LATERAL (
        SELECT m.queue_id FROM leasequeue_member m WHERE m.key = k.id AND m.waits ORDER BY m.rank, m.seq
        OFFSET (SELECT count(*) FROM m WHERE m.key = k.id) LIMIT 1) w
    -- Where slots are missing, the end of a job makes a turn.
    WHERE (k.rate IS NOT NULL OR n.n >= %(most)s::int) AND (k.slots IS NULL OR COALESCE(n.n, 0) < k.slots)
), wake AS MATERIALIZED (
    SELECT CASE WHEN pg_try_advisory_lock(1280657731, w.queue_id::int)
        THEN pg_advisory_unlock(1280657731, w.queue_id::int)::text
        ELSE pg_notify('leasequeue', 'q' || w.queue_id)::text END AS sent
    FROM (SELECT DISTINCT queue_id FROM gone) w
)
SELECT g.seq, (SELECT count(sent) FROM wake) FROM gone g
