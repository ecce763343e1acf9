-- Purpose: record a sleep or a wait of a leased job, and return whether it is over.
--   What is kept stays: a later delivery waits for the rest. A job waits in one place: while it waits here, its other
--   open waits are forgotten, as their events must not wake it.
-- Parameters: seq, token, node, name, number (its place in their order), event (null: sleep), until (null: delay),
--   delay (ms), delivery; now, autocommit.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey, leasequeue_emittedevent_pkey, leasequeue_jobstep_pkey,
--   leasequeue_jobstep_waiting. Always on disk: nothing asks for less.
-- Pages: 60
-- Returns: what it has waited for (JSON text; null: it waits), ms that are left; no row: the lease is not held.
WITH claim AS MATERIALIZED (
    SELECT q.project, n.now, COALESCE(%(until)s::timestamptz, n.now + %(delay)s::bigint * interval '1 ms') AS until
    FROM leasequeue_claim c CROSS JOIN LATERAL (SELECT q.project, q.late_ack FROM leasequeue_queue q
        WHERE q.id = c.queue_id OFFSET 0) q
    CROSS JOIN LATERAL (SELECT {now()} AS now OFFSET 0) n
    WHERE c.token = %(token)s::bigint AND (c.node = %(node)s::text) IS TRUE AND %(seq)s::bigint = ANY (c.seqs)
        AND {in_time(n.now)}
), found AS MATERIALIZED (
    SELECT claim.*, (SELECT json_build_object('event', e.name, 'payload', e.payload) FROM leasequeue_emittedevent e
        WHERE e.project = claim.project AND e.name = %(event)s::text AND (e.expires_at > claim.now) IS TRUE) AS value
    FROM claim
), kept AS (
    INSERT INTO leasequeue_jobstep AS s (seq, number, name, value, done_at, delivery, until, project, event)
    SELECT %(seq)s::bigint, %(number)s::int, %(name)s::text, v.value, found.now, %(delivery)s::int, found.until,
        CASE WHEN v.value IS NULL THEN found.project END, CASE WHEN v.value IS NULL THEN %(event)s::text END
    FROM found CROSS JOIN LATERAL (SELECT COALESCE(found.value,
        CASE WHEN found.until <= found.now THEN json_build_object('event', %(event)s::text, 'until',
            found.until) END) AS value) v
    ON CONFLICT (seq, name) DO UPDATE SET (value, done_at, project, event) = (
        SELECT v.value, CASE WHEN s.value IS NULL THEN excluded.done_at ELSE s.done_at END,
            CASE WHEN v.value IS NULL THEN s.project END, CASE WHEN v.value IS NULL THEN s.event END
        FROM (SELECT COALESCE(s.value, (SELECT value FROM found), CASE WHEN s.until <= excluded.done_at
            THEN json_build_object('event', s.event, 'until', s.until) END) AS value) v)
    RETURNING s.value::text, CEIL(EXTRACT(epoch FROM s.until - (SELECT now FROM claim)) * 1000)::bigint AS left_ms
), forgotten AS (
    DELETE FROM leasequeue_jobstep o
    WHERE o.seq = %(seq)s::bigint AND o.event IS NOT NULL AND o.name <> %(name)s::text
        AND EXISTS (SELECT FROM kept WHERE kept.value IS NULL)
)
SELECT kept.*, CASE WHEN %(autocommit)s::bool
    AND current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END
FROM kept
