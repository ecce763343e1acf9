-- Purpose: remove dead letters for good. A dead job is remembered as failed for as long as its queue keeps results.
-- Parameters: seqs (at most 1,000), until (dead letters that died later stay; null: any), reason (into the event), now.
-- Index: leasequeue_deadletter_pkey, leasequeue_job_pkey, leasequeue_record_pkey, leasequeue_ready_pkey, leasequeue_attempt_job,
--   leasequeue_queue_pkey, leasequeue_floor_place, leasequeue_member_pkey. A locked dead letter is passed over.
-- Pages: 20 + 30 a row
-- Returns: the seqs that went.
WITH t AS MATERIALIZED (SELECT {now()} AS now, pg_current_xact_id()::text::bigint AS txid), s AS MATERIALIZED (
    SELECT d.*, j.name, j.created_at, j.result_ttl_ms, p.place, p.state
    FROM unnest(%(seqs)s::bigint[]) AS u(seq)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_deadletter d
        WHERE d.seq = u.seq AND d.dead_at + interval '0' <= COALESCE(%(until)s::timestamptz, 'infinity') OFFSET 0) d
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq OFFSET 0) j
    {dead_place(d.queue_id, u.seq, l.dead_at + interval '0' = d.dead_at, COALESCE(j.position, j.seq))}
), g AS MATERIALIZED (
    SELECT s.*, CASE WHEN s.state = 3 THEN COALESCE(s.result_ttl_ms, q.result_ttl_ms) ELSE 0 END AS keep
    FROM s CROSS JOIN LATERAL (SELECT q.result_ttl_ms FROM leasequeue_queue q WHERE q.id = s.queue_id OFFSET 0) q
), dead_letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM g))
), members AS (
    DELETE FROM leasequeue_member WHERE seq = ANY (ARRAY(SELECT seq FROM g)) AND workflow IS NULL
), records AS (
    DELETE FROM leasequeue_record WHERE ctid = ANY (ARRAY(SELECT place FROM g WHERE state = 4))
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM g WHERE state = 0))
), kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, finished_at, expires_at, deliveries, state, error_type, error, fingerprint)
    SELECT g.seq, g.queue_id, t.now, t.now + g.keep * interval '1 ms', g.deliveries, 2, g.error_type, g.error, g.fingerprint
    FROM g, t WHERE g.keep > 0
    ON CONFLICT DO NOTHING
), gone AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM g WHERE keep = 0)) AND {removing()}
), forgotten AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM g WHERE keep = 0))
), head AS (
    {note_highest(SELECT g.queue_id, t.now, max(g.seq) AS high FROM g, t GROUP BY g.queue_id, t.now)}
), uncounted AS (
    UPDATE leasequeue_topicstate SET records = NULL, bytes = NULL
    WHERE records IS NOT NULL AND queue_id = ANY (ARRAY(SELECT queue_id FROM g))
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, deliveries, detail)
    SELECT t.txid, t.now, g.queue_id, min(g.seq), max(g.seq), 10, g.name, array_agg(g.seq ORDER BY g.seq),
        array_agg(g.deliveries ORDER BY g.seq), jsonb_build_object('reason', 'discarded', 'words', left(%(reason)s::text, 500))
    FROM g, t WHERE g.state <> 4 GROUP BY t.txid, t.now, g.queue_id, g.name
)
SELECT seq FROM g
