-- Purpose: jobs that wait for their key become ready, as many as its limit has room for; where its rate has none, a turn for the
--   time at which it has; where more than these may start, a turn at once. The caller holds the keys (flow_lock.sql).
-- Parameters: keys (ids), most (jobs of one key), queues (ids: of a key with a rate only their jobs are admitted, since the caller
--   starts them at once), room (how many jobs the caller starts; 0: none of a key with a rate), now.
--   Jobs of a fair limit go to the back of their rank, so that keys take turns; others to their old place.
--   A rate is paid for here, so admission and claim are one transaction (flow_return.sql takes back what was not claimed). Each start moves
--   paid_until on by the interval of a start; it may be ahead of now by the burst, and half an interval or a hundredth of the rate may be
--   caught up. Beside that no window of per_ms and 40 ms (in which a start may be late) has more than rate + burst: the starts of
--   that time stand in started (microseconds) and counts, in at most 65 steps.
-- Index: leasequeue_limitkey_pkey, leasequeue_limit_pkey, leasequeue_member_taken (a limit's concurrency, 10,000 at most),
--   leasequeue_member_waits, leasequeue_delayed_pkey, leasequeue_job_pkey, leasequeue_flowturn_key.
-- Pages: 50 + 30 a row
-- Returns: the jobs' numbers; whether the key of each has a rate; waking.
WITH t AS MATERIALIZED (
    SELECT now, (extract(epoch FROM now) * 1000000)::bigint AS us FROM (SELECT {now()} AS now) t
), l AS MATERIALIZED (
    SELECT k.id, k.paid_until AS paid, k.started, k.counts, l.concurrency, l.fair, l.rate, l.burst, GREATEST(0.5, l.rate / 100.0) AS late,
        l.per_ms * interval '1 ms' / l.rate AS each, (l.per_ms + 40) * 1000 AS span,
        CASE WHEN l.rate + l.burst <= 32 THEN 1 ELSE (l.per_ms + 40) * 1000 / 64 END AS step
    FROM unnest(%(keys)s::bigint[]) AS u(id)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_limitkey k WHERE k.id = u.id OFFSET 0) k
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_limit l WHERE l.id = k.limit_id OFFSET 0) l
), k AS MATERIALIZED (
    -- A clock that went back, a limit that has changed: what is paid for beyond a full burst is forgotten, and no start was later than now.
    SELECT l.*, w.n AS spent, w.first, w.ahead OR l.paid > p.most AS moved, LEAST(GREATEST(l.paid, t.now - l.late * l.each), p.most) AS from_,
        CASE WHEN l.concurrency IS NOT NULL THEN l.concurrency - (
            SELECT count(*) FROM (SELECT FROM leasequeue_member m WHERE m.key = l.id AND m.taken LIMIT 10001) s) END AS slots
    FROM t CROSS JOIN l CROSS JOIN LATERAL (SELECT t.now + (1 + l.burst + l.late) * l.each AS most) p
    CROSS JOIN LATERAL (
        SELECT COALESCE(sum(s.n), 0) AS n, min(LEAST(s.at, t.us + l.step)) AS first, COALESCE(bool_or(s.at > t.us + l.step), false) AS ahead
        FROM unnest(l.started, l.counts) AS s(at, n) WHERE l.rate IS NOT NULL AND s.at > t.us - l.span) w
), a AS MATERIALIZED (
    SELECT k.*, CASE WHEN k.rate IS NOT NULL THEN LEAST(%(room)s::int, k.rate + k.burst - k.spent,
        floor(extract(epoch FROM t.now - k.from_) / extract(epoch FROM k.each) + 1 + k.burst)) END AS starts
    FROM k, t
), m AS MATERIALIZED (
    SELECT m.seq, m.queue_id, k.id AS key, k.rate IS NOT NULL AS rated, CASE WHEN k.fair THEN nextval('leasequeue_job_seq_seq') END AS position
    FROM a k CROSS JOIN LATERAL (
        SELECT m.seq, m.queue_id FROM (
            SELECT m.seq, m.queue_id, m.rank FROM leasequeue_member m WHERE m.key = k.id AND m.waits ORDER BY m.rank, m.seq
            LIMIT CASE WHEN k.rate IS NULL THEN %(most)s::int WHEN k.starts > 0 THEN 10000 ELSE 0 END) m
        WHERE k.rate IS NULL OR m.queue_id = ANY (%(queues)s::bigint[]) ORDER BY m.rank, m.seq
        LIMIT GREATEST(0, LEAST(%(most)s::int, k.slots, k.starts))) m
), gone AS (
    DELETE FROM leasequeue_delayed d WHERE d.seq = ANY (ARRAY(SELECT seq FROM m)) RETURNING d.*
), taken AS (
    -- Whatever the limit says now: it may get a concurrency later, which these count for.
    UPDATE leasequeue_member SET waits = false, taken = true WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
), missing AS (
    -- Cancelled before they were members: a look at that time saw none. Once more, or they keep the others waiting for ever.
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
    SELECT m.queue_id, 'epoch', 2, array_agg(m.seq) FROM m
    WHERE (SELECT count(*) FROM gone) < (SELECT count(*) FROM m) AND m.seq <> ALL (ARRAY(SELECT seq FROM gone)) GROUP BY m.queue_id
), moved AS (
    UPDATE leasequeue_job j SET position = m.position FROM m
    WHERE j.seq = m.seq AND j.seq = ANY (ARRAY(SELECT seq FROM m WHERE position IS NOT NULL))
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries, expires_at,
        tag)
    SELECT g.queue_id, g.rank, CASE WHEN m.position IS NULL THEN 1 ELSE 2 END,
        COALESCE(m.position, (SELECT COALESCE(j.position, j.seq) FROM leasequeue_job j WHERE j.seq = g.seq)), g.seq, g.deliveries,
        g.flags & 255 | CASE WHEN m.rated THEN 256 ELSE 0 END, t.now, g.max_deliveries, g.expires_at, g.tag
    FROM gone g JOIN m ON m.seq = g.seq, t
), n AS MATERIALIZED (
    SELECT a.*, COALESCE(n.n, 0) AS n, a.from_ + COALESCE(n.n, 0) * a.each AS until FROM a LEFT JOIN (
        SELECT m.key, count(*) AS n FROM m JOIN gone g ON g.seq = m.seq GROUP BY m.key) n ON n.key = a.id
), paid AS (
    UPDATE leasequeue_limitkey u SET paid_until = n.until, started = s.started, counts = s.counts, fits = NULL
    FROM t, n CROSS JOIN LATERAL (
        SELECT array_agg(s.at ORDER BY s.at) AS started, array_agg(s.n ORDER BY s.at) AS counts FROM (
            SELECT s.at, sum(s.n)::int AS n FROM (
                SELECT LEAST(s.at, (t.us / n.step + 1) * n.step) AS at, s.n FROM unnest(n.started, n.counts) AS s(at, n)
                WHERE s.at > t.us - n.span
                UNION ALL SELECT (t.us / n.step + 1) * n.step, n.n WHERE n.n > 0) s GROUP BY s.at) s) s
    WHERE u.id = n.id AND u.id = ANY (ARRAY(SELECT id FROM n)) AND n.rate IS NOT NULL AND (n.n > 0 OR n.moved)
), fit AS (
    -- With more taken than there may be, or without a concurrency, slots are not passed on.
    UPDATE leasequeue_limitkey u SET fits = CASE WHEN n.slots >= 0 THEN n.concurrency END
    FROM n WHERE u.id = n.id AND u.id = ANY (ARRAY(SELECT id FROM n)) AND n.rate IS NULL
        AND u.fits IS DISTINCT FROM CASE WHEN n.slots >= 0 THEN n.concurrency END
), later AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, key)
    SELECT w.queue_id, 'epoch', 3, n.id
    FROM n CROSS JOIN LATERAL (
        SELECT m.queue_id FROM leasequeue_member m WHERE n.rate IS NULL AND m.key = n.id AND m.waits ORDER BY m.rank, m.seq
        OFFSET (SELECT count(*) FROM m WHERE m.key = n.id) LIMIT 1) w
    -- Where slots are missing, the end of a job makes a turn.
    WHERE n.n >= %(most)s::int AND (n.slots IS NULL OR n.n < n.slots)
    UNION ALL
    -- Each queue with jobs of a key with a rate has a turn of its own, not before now: its claimers take it, the reaper does not.
    SELECT w.queue_id, w.at, 3, n.id
    FROM t CROSS JOIN n CROSS JOIN LATERAL (
        SELECT DISTINCT m.queue_id, GREATEST(n.until - n.burst * n.each, t.now, CASE WHEN n.spent + n.n >= n.rate + n.burst
                THEN 'epoch'::timestamptz + interval '1 us' * (COALESCE(n.first, t.us + n.step) + n.span) END,
            CASE WHEN n.n >= n.slots THEN t.now + interval '1 s' END) AS at
        FROM (SELECT m.seq, m.queue_id FROM leasequeue_member m WHERE m.key = n.id AND m.waits ORDER BY m.rank, m.seq LIMIT 1000) m
        WHERE n.rate IS NOT NULL AND m.seq NOT IN (SELECT seq FROM m)
            AND NOT (COALESCE(n.n >= n.slots, false) AND m.queue_id = ANY (%(queues)s::bigint[]))) w
    WHERE NOT EXISTS (SELECT FROM leasequeue_flowturn f WHERE f.key = n.id AND f.kind = 3 AND f.queue_id = w.queue_id AND f.at <= w.at OFFSET 0)
    RETURNING queue_id, at
), wake AS MATERIALIZED (
    SELECT {wake(w.queue_id)} AS sent
    FROM (SELECT queue_id FROM gone UNION SELECT l.queue_id FROM later l, t WHERE l.at <= t.now AND l.queue_id <> ALL (%(queues)s::bigint[])) w
)
SELECT g.seq, g.seq = ANY (ARRAY(SELECT seq FROM m WHERE rated)), (SELECT count(sent) FROM wake) FROM gone g
