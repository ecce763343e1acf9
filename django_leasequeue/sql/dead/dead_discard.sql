-- Purpose: remove dead letters for good. A dead job's result is kept as failed, as long as its queue keeps results.
-- Parameters: seqs (at most 1,000), until (dead letters that died later stay; null: any), reason (into the event), now.
-- Index: leasequeue_deadletter_pkey, leasequeue_job_pkey, leasequeue_record_pkey, leasequeue_ready_pkey,
--   leasequeue_attempt_job, leasequeue_queue_pkey, leasequeue_floor_place, leasequeue_member_pkey. A locked dead letter
--   is passed over.
-- Pages: 20 + 30 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now, {txid()} AS txid),
    letters AS MATERIALIZED (
    SELECT d.*, j.name, j.created_at, j.result_ttl_ms, p.place, p.state
    FROM unnest(%(seqs)s::bigint[]) AS u(seq)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_deadletter d
        WHERE d.seq = u.seq AND d.dead_at + interval '0' <= COALESCE(%(until)s::timestamptz, 'infinity') OFFSET 0) d
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq OFFSET 0) j
    CROSS JOIN {dead_place(d.queue_id, u.seq, l.dead_at + interval '0' = d.dead_at, COALESCE(j.position, j.seq))}
), discarded AS MATERIALIZED (
    SELECT letters.*, CASE WHEN letters.state = {DEAD} THEN COALESCE(letters.result_ttl_ms, q.result_ttl_ms)
        ELSE 0 END AS keep
    FROM letters CROSS JOIN LATERAL (SELECT q.result_ttl_ms FROM leasequeue_queue q
        WHERE q.id = letters.queue_id OFFSET 0) q
), dead_letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM discarded))
), members AS (
    DELETE FROM leasequeue_member WHERE seq = ANY (ARRAY(SELECT seq FROM discarded)) AND workflow IS NULL
), records AS (
    DELETE FROM leasequeue_record WHERE ctid = ANY (ARRAY(SELECT place FROM discarded WHERE state = {RECORD}))
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM discarded WHERE state = {READY}))
), kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, finished_at, expires_at, deliveries, state, error_type, error,
        fingerprint)
    SELECT discarded.seq, discarded.queue_id, clock.now, clock.now + discarded.keep * interval '1 ms',
        discarded.deliveries, {result.FAILED}, discarded.error_type, discarded.error, discarded.fingerprint
    FROM discarded, clock WHERE discarded.keep > 0
    ON CONFLICT DO NOTHING
), gone AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM discarded WHERE keep = 0)) AND {removing()}
), forgotten AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM discarded WHERE keep = 0))
), head AS (
    {note_highest(SELECT discarded.queue_id, clock.now, max(discarded.seq) AS high FROM discarded, clock
        GROUP BY discarded.queue_id, clock.now)}
), uncounted AS (
    UPDATE leasequeue_topicstate SET records = NULL, bytes = NULL
    WHERE records IS NOT NULL AND queue_id = ANY (ARRAY(SELECT queue_id FROM discarded))
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, deliveries, detail)
    SELECT clock.txid, clock.now, discarded.queue_id, min(discarded.seq), max(discarded.seq), {event.CANCELLED},
        discarded.name, array_agg(discarded.seq ORDER BY discarded.seq),
        array_agg(discarded.deliveries ORDER BY discarded.seq), jsonb_build_object('reason', 'discarded', 'words',
            left(%(reason)s::text, 500))
    FROM discarded, clock WHERE discarded.state <> {RECORD} GROUP BY clock.txid, clock.now, discarded.queue_id,
        discarded.name
)
SELECT seq FROM discarded
