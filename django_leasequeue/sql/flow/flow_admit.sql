-- Purpose: jobs that wait for their key become ready, as many as its limit has room for; where its rate has none, a
--   turn for the time at which it has; where more than these may start, a turn at once. The caller holds the keys
--   (flow_lock.sql).
-- Parameters: keys (ids), most (jobs of one key), queues (ids: of a key with a rate only their jobs are admitted, since
--   the caller starts them at once), room (how many jobs of rates the caller starts, of all keys together), now. Jobs
--   of a fair limit go to the back of their rank, so that keys take turns; others to their old place. A rate is paid
--   for here, so admission and claim are one transaction (flow_return.sql takes back what was not claimed). Each start
--   moves paid_until on by the interval of a start; it may be ahead of now by the burst, and half an interval or a
--   hundredth of the rate may be caught up. Beside that no window of per_ms and 40 ms (in which a start may be late)
--   has more than rate + burst: the starts of that time stand in started (microseconds) and counts, in at most 65
--   steps.
-- Index: leasequeue_limitkey_pkey, leasequeue_limit_pkey, leasequeue_member_taken (a limit's concurrency, 10,000 at
--   most), leasequeue_member_waits, leasequeue_delayed_pkey, leasequeue_job_pkey, leasequeue_flowturn_key.
-- Pages: 50 + 30 a row
-- Returns: the jobs' numbers; whether the key of each has a rate; their queues; waking.
WITH clock AS MATERIALIZED (
    SELECT now, (extract(epoch FROM now) * 1000000)::bigint AS us FROM (SELECT {now()} AS now) t
), limits AS MATERIALIZED (
    SELECT k.id, k.paid_until AS paid, k.started, k.counts, l.concurrency, l.fair, l.rate, l.burst,
        GREATEST(0.5, l.rate / 100.0) AS late,
        l.per_ms * interval '1 ms' / l.rate AS each, (l.per_ms + 40) * 1000 AS span,
        CASE WHEN l.rate + l.burst <= 32 THEN 1 ELSE (l.per_ms + 40) * 1000 / 64 END AS step
    FROM unnest(%(keys)s::bigint[]) AS u(id)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_limitkey k WHERE k.id = u.id OFFSET 0) k
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_limit l WHERE l.id = k.limit_id OFFSET 0) l
), keys AS MATERIALIZED (
    -- A clock that went back, a limit that has changed: what is paid for beyond a full burst is forgotten, and no start
    -- was later than now.
    SELECT limits.*, w.n AS spent, w.first, w.ahead OR limits.paid > p.most AS moved,
        LEAST(GREATEST(limits.paid, clock.now - limits.late * limits.each), p.most) AS from_,
        CASE WHEN limits.concurrency IS NOT NULL THEN limits.concurrency - (
            SELECT count(*) FROM (SELECT FROM leasequeue_member m WHERE m.key = limits.id AND m.taken
                LIMIT 10001) s) END AS slots
    FROM clock CROSS JOIN limits
    CROSS JOIN LATERAL (SELECT clock.now + (1 + limits.burst + limits.late) * limits.each AS most) p
    CROSS JOIN LATERAL (
        SELECT COALESCE(sum(s.n), 0) AS n, min(LEAST(s.at, clock.us + limits.step)) AS first,
            COALESCE(bool_or(s.at > clock.us + limits.step), false) AS ahead
        FROM unnest(limits.started, limits.counts) AS s(at, n) WHERE limits.rate IS NOT NULL
            AND s.at > clock.us - limits.span) w
), allowed AS MATERIALIZED (
    SELECT keys.*, CASE WHEN keys.rate IS NOT NULL THEN LEAST(%(room)s::int, keys.rate + keys.burst - keys.spent,
        floor(extract(epoch FROM clock.now - keys.from_) / extract(epoch FROM keys.each)
            + 1 + keys.burst)) END AS starts
    FROM keys, clock
), admitted AS MATERIALIZED (
    SELECT c.seq, c.queue_id, c.key, c.rated, CASE WHEN c.fair THEN nextval('leasequeue_job_seq_seq') END AS position
    FROM (
        -- Where rates have more permits than there is room for, the key comes first whose last start is the longest
        -- ago.
        SELECT m.seq, m.queue_id, k.id AS key, k.fair, k.rate IS NOT NULL AS rated,
            row_number() OVER (PARTITION BY k.rate IS NULL ORDER BY k.paid NULLS FIRST, k.id, m.rank, m.seq) AS place
        FROM allowed k CROSS JOIN LATERAL (
            SELECT m.seq, m.queue_id, m.rank FROM (
                SELECT m.seq, m.queue_id, m.rank FROM leasequeue_member m WHERE m.key = k.id AND m.waits
                ORDER BY m.rank, m.seq
                LIMIT CASE WHEN k.rate IS NULL THEN %(most)s::int WHEN k.starts > 0 THEN 10000 ELSE 0 END) m
            WHERE k.rate IS NULL OR m.queue_id = ANY (%(queues)s::bigint[]) ORDER BY m.rank, m.seq
            LIMIT GREATEST(0, LEAST(%(most)s::int, k.slots, k.starts))) m) c
    WHERE NOT c.rated OR c.place <= %(room)s::int
), gone AS (
    DELETE FROM leasequeue_delayed d WHERE d.seq = ANY (ARRAY(SELECT seq FROM admitted)) RETURNING d.*
), taken AS (
    -- Whatever the limit says now: it may get a concurrency later, which these count for.
    UPDATE leasequeue_member SET waits = false, taken = true WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
), missing AS (
    -- Cancelled before they were members: a look at that time saw none. Once more, or they keep the others waiting for
    -- ever.
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
    SELECT admitted.queue_id, 'epoch', {turn.LOOK}, array_agg(admitted.seq) FROM admitted
    WHERE (SELECT count(*) FROM gone) < (SELECT count(*) FROM admitted)
        AND admitted.seq <> ALL (ARRAY(SELECT seq FROM gone)) GROUP BY admitted.queue_id
), moved AS (
    UPDATE leasequeue_job j SET position = admitted.position FROM admitted
    WHERE j.seq = admitted.seq AND j.seq = ANY (ARRAY(SELECT seq FROM admitted WHERE position IS NOT NULL))
), ready AS (
    {into_ready()}
    SELECT g.queue_id, g.rank, CASE WHEN admitted.position IS NULL THEN {AGAIN} ELSE {FRESH} END,
        COALESCE(admitted.position, (SELECT COALESCE(j.position, j.seq) FROM leasequeue_job j WHERE j.seq = g.seq)),
        g.seq, g.deliveries, g.flags & ~{RATED|KEEPS_SLOT|PUT_OFF} | CASE WHEN admitted.rated THEN {RATED} ELSE 0 END,
        clock.now, g.max_deliveries, g.expires_at, g.tag
    FROM gone g JOIN admitted ON admitted.seq = g.seq, clock
), totals AS MATERIALIZED (
    SELECT allowed.*, COALESCE(n.n, 0) AS n, allowed.from_ + COALESCE(n.n, 0) * allowed.each AS until FROM allowed
    LEFT JOIN (
        SELECT admitted.key, count(*) AS n FROM admitted JOIN gone g ON g.seq = admitted.seq GROUP BY admitted.key) n
            ON n.key = allowed.id
), paid AS (
    UPDATE leasequeue_limitkey u SET paid_until = totals.until, started = s.started, counts = s.counts
    FROM clock, totals CROSS JOIN LATERAL (
        SELECT array_agg(s.at ORDER BY s.at) AS started, array_agg(s.n ORDER BY s.at) AS counts FROM (
            SELECT s.at, sum(s.n)::int AS n FROM (
                SELECT LEAST(s.at, (clock.us / totals.step + 1) * totals.step) AS at, s.n
                FROM unnest(totals.started, totals.counts) AS s(at, n)
                WHERE s.at > clock.us - totals.span
                UNION ALL SELECT (clock.us / totals.step + 1) * totals.step, totals.n WHERE totals.n > 0) s
                    GROUP BY s.at) s) s
    WHERE u.id = totals.id AND u.id = ANY (ARRAY(SELECT id FROM totals)) AND totals.rate IS NOT NULL
        AND (totals.n > 0 OR totals.moved)
), later AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, key)
    SELECT w.queue_id, 'epoch', {turn.ADMIT}, totals.id
    FROM totals CROSS JOIN LATERAL (
        SELECT m.queue_id FROM leasequeue_member m WHERE totals.rate IS NULL AND m.key = totals.id AND m.waits
        ORDER BY m.rank, m.seq
        OFFSET (SELECT count(*) FROM admitted WHERE admitted.key = totals.id) LIMIT 1) w
    -- Where slots are missing, the end of a job makes a turn.
    WHERE totals.n >= %(most)s::int AND (totals.slots IS NULL OR totals.n < totals.slots)
    UNION ALL
    -- Each queue with jobs of a key with a rate has a turn of its own, not before now: its claimers take it, the reaper
    -- does not.
    SELECT w.queue_id, w.at, {turn.ADMIT}, totals.id
    FROM clock CROSS JOIN totals CROSS JOIN LATERAL (
        SELECT DISTINCT m.queue_id, GREATEST(totals.until - totals.burst * totals.each, clock.now, CASE
            WHEN totals.spent + totals.n >= totals.rate + totals.burst
                THEN 'epoch'::timestamptz + interval '1 us' * (COALESCE(totals.first,
                    clock.us + totals.step) + totals.span) END,
            CASE WHEN totals.n >= totals.slots THEN clock.now + interval '1 s' END) AS at
        FROM (SELECT m.seq, m.queue_id FROM leasequeue_member m WHERE m.key = totals.id AND m.waits ORDER BY m.rank,
            m.seq LIMIT 1000) m
        WHERE totals.rate IS NOT NULL AND m.seq NOT IN (SELECT seq FROM admitted)
            AND NOT (COALESCE(totals.n >= totals.slots, false) AND m.queue_id = ANY (%(queues)s::bigint[]))) w
    WHERE NOT EXISTS (SELECT FROM leasequeue_flowturn f WHERE f.key = totals.id AND f.kind = {turn.ADMIT}
        AND f.queue_id = w.queue_id AND f.at <= w.at OFFSET 0)
    RETURNING queue_id, at
), wake AS MATERIALIZED (
    SELECT {wake(w.queue_id)} AS sent
    FROM (SELECT queue_id FROM gone UNION SELECT l.queue_id FROM later l, clock
        WHERE l.at <= clock.now AND l.queue_id <> ALL (%(queues)s::bigint[])) w
)
SELECT g.seq, g.seq = ANY (ARRAY(SELECT seq FROM admitted WHERE rated)), g.queue_id, (SELECT count(sent) FROM wake)
FROM gone g
