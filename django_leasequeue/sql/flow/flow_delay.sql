-- Purpose: jobs that wait for nothing but a time of their own any more are due at that time. The caller holds their
--   workflows (flow_lock.sql).
-- Parameters: seqs, now.
-- Index: leasequeue_member_pkey, leasequeue_delayed_pkey.
-- Pages: 40 + 24 a row
-- Returns: the jobs' numbers; waking: who sleeps learns of the new time.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), timed AS MATERIALIZED (
    SELECT m.seq, GREATEST(clock.now + COALESCE(m.delay_ms, 0) * interval '1 ms', m.not_before) AS at
    FROM clock CROSS JOIN unnest(%(seqs)s::bigint[]) AS u(seq)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_member m WHERE m.seq = u.seq OFFSET 0) m
), known AS (
    -- Once: an attempt after it, or a dead letter that is tried again, has the time that its retry gives it.
    UPDATE leasequeue_member SET delay_ms = NULL, not_before = NULL WHERE seq = ANY (ARRAY(SELECT seq FROM timed))
), moved AS (
    UPDATE leasequeue_delayed d SET available_at = timed.at FROM timed
    WHERE d.seq = timed.seq AND d.seq = ANY (ARRAY(SELECT seq FROM timed))
        AND (d.available_at >= {HELD}) IS TRUE
    RETURNING d.seq, d.queue_id
), wake AS MATERIALIZED (
    SELECT {wake(w.queue_id)} AS sent FROM (SELECT DISTINCT queue_id FROM moved) w
)
SELECT m.seq, (SELECT count(sent) FROM wake) FROM moved m
