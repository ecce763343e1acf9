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
    CROSS JOIN LATERAL (
        SELECT * FROM (SELECT l.ctid AS place, 3 AS state FROM leasequeue_deadletter l
            WHERE d.in_place AND l.seq = u.seq AND l.dead_at + interval '0' = d.dead_at FOR UPDATE SKIP LOCKED) a
        UNION ALL
        SELECT * FROM (SELECT o.ctid, 4 FROM leasequeue_record o
            WHERE NOT d.in_place AND o.queue_id = d.queue_id AND o.seq = u.seq FOR UPDATE SKIP LOCKED) b
        UNION ALL
        SELECT c.* FROM (VALUES (2::smallint), (1::smallint)) AS v(lane) CROSS JOIN LATERAL (
            SELECT r.ctid, 0 FROM leasequeue_ready r WHERE NOT d.in_place AND r.queue_id = d.queue_id AND r.rank = j.rank
                AND r.lane = v.lane AND r.position = COALESCE(j.position, j.seq) AND r.seq = u.seq FOR UPDATE SKIP LOCKED) c
        LIMIT 1) p
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
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at)
    SELECT h.queue_id, 3, 0, h.high, t.now FROM t, (SELECT queue_id, max(seq) AS high FROM g GROUP BY queue_id) h
    WHERE h.high > {floor(h.queue_id, 3, 0)}
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
