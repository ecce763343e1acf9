-- Purpose: how many jobs sleep and how many wait for an event, and for how long the oldest of those has done so.
-- Parameters: size (of each kind that are counted at most), now.
-- Index: leasequeue_jobstep_asleep, leasequeue_jobstep_event, leasequeue_delayed_pkey.
-- Pages: 100 + 8 a row
-- Returns: for each kind (sleep, event) how many, seconds of the oldest (null: none).
SELECT k.kind, count(x.done_at), EXTRACT(epoch FROM {now()} - min(x.done_at))::float8
FROM (VALUES ('sleep'), ('event')) AS k(kind) LEFT JOIN LATERAL (
    SELECT s.done_at FROM (
        SELECT * FROM (SELECT s.seq, s.done_at FROM leasequeue_jobstep s WHERE k.kind = 'sleep' AND s.value IS NULL AND s.event IS NULL
            ORDER BY s.done_at, s.seq LIMIT %(size)s::int) a
        UNION ALL
        SELECT * FROM (SELECT s.seq, s.done_at FROM leasequeue_jobstep s WHERE k.kind = 'event' AND s.event IS NOT NULL
            ORDER BY s.event, s.project, s.seq LIMIT %(size)s::int) b) s
    CROSS JOIN LATERAL (SELECT FROM leasequeue_delayed d WHERE d.seq = s.seq OFFSET 0) d) x ON true
GROUP BY k.kind ORDER BY k.kind
