-- Purpose: remove dead letters for good. A dead job is remembered as failed for as long as its queue keeps results.
-- Parameters: seqs, until (letters that died later stay; null: any), reason (into the event), now.
-- Index: leasequeue_job_pkey, leasequeue_topicstate_pkey.
-- Returns: the seqs that went.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now, pg_current_xact_id()::text::bigint AS txid
), d AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j
    WHERE j.seq = ANY (%(seqs)s::bigint[]) AND j.dead_at <= COALESCE(%(until)s::timestamptz, 'infinity') AND j.state IN (0, 3, 4)
    ORDER BY j.seq FOR UPDATE OF j SKIP LOCKED
), gone AS (
    DELETE FROM leasequeue_job j WHERE j.seq = ANY (ARRAY(SELECT seq FROM d)) RETURNING j.*
), kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, created_at, first_claimed_at, claimed_at, finished_at, expires_at, deliveries,
        rank, state, key, name, tag, data, meta, body, progress, errors, error_type, error, fingerprint)
    SELECT g.seq, g.queue_id, g.created_at, g.first_claimed_at, g.claimed_at, t.now,
        t.now + COALESCE(g.result_ttl_ms, q.result_ttl_ms) * interval '1 ms', g.deliveries, g.rank, 2, g.key, g.name, g.tag,
        g.data, g.meta, g.body, g.progress, g.errors, g.error_type, g.error, g.fingerprint
    FROM gone g CROSS JOIN LATERAL (SELECT q.result_ttl_ms FROM leasequeue_queue q WHERE q.id = g.queue_id LIMIT 1) q, t
    WHERE g.state = 3 AND COALESCE(g.result_ttl_ms, q.result_ttl_ms) > 0
    ON CONFLICT DO NOTHING
), remembered AS (
    INSERT INTO leasequeue_topicstate AS s (queue_id, head_seq, last_write_at)
    SELECT queue_id, max(seq), max(created_at) FROM gone GROUP BY queue_id ORDER BY queue_id
    ON CONFLICT (queue_id) DO UPDATE SET head_seq = GREATEST(s.head_seq, excluded.head_seq),
        last_write_at = GREATEST(s.last_write_at, excluded.last_write_at), records = NULL, bytes = NULL
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, deliveries, enqueued_at, name, detail)
    SELECT t.txid, t.now, g.queue_id, g.seq, 10, g.deliveries, g.created_at, g.name,
        jsonb_build_object('reason', 'discarded', 'words', left(%(reason)s::text, 500))
    FROM gone g, t WHERE g.state <> 4
)
SELECT seq FROM gone
