-- Purpose: dead-letter jobs to another topic: append to it with provenance, remove here, count, in one statement. In a log
--   a letter keeps its rank and its own limits for the day it goes home; in a queue it is a job like any other.
-- Parameters: queue (source id), target (topic id), seqs; node and claims (the holder who released them; null for jobs
--   whose lease expired or that were met by a claim); now.
-- Index: leasequeue_job_pkey, leasequeue_job_key.
-- Returns: the source seq, the new seq, key, name, deliveries.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now, pg_current_xact_id()::text::bigint AS txid
), q AS MATERIALIZED (
    SELECT * FROM leasequeue_queue WHERE id = %(queue)s
), target AS MATERIALIZED (
    SELECT * FROM leasequeue_queue WHERE id = %(target)s
), s AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j, q, t
    WHERE j.seq = ANY (%(seqs)s::bigint[]) AND j.queue_id = q.id
        AND COALESCE(j.max_deliveries, q.max_deliveries) BETWEEN 1 AND j.deliveries
        AND (j.state = 0 OR (j.state = 2 AND (j.deadline < t.now
            OR (j.node = %(node)s::text AND j.claim = ANY (%(claims)s::bigint[])))))
    ORDER BY j.seq FOR UPDATE OF j SKIP LOCKED
), gone AS (
    DELETE FROM leasequeue_job j WHERE j.seq = ANY (ARRAY(SELECT seq FROM s)) RETURNING j.*
), numbered AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS new_seq, g.*, e.*, COALESCE(e.new_type, g.error_type, 'MAX_ATTEMPTS') AS type,
        CASE WHEN e.new_type IS NULL THEN COALESCE(g.fingerprint, '') ELSE 'lease_expired' END AS print
    FROM gone g LEFT JOIN LATERAL (
        SELECT 'LEASE_EXPIRED' AS new_type, 'the lease expired: the worker died, hung or lost its database' AS new_error
        WHERE g.state = 2 AND %(node)s::text IS NULL) e ON true
    ORDER BY g.seq
), new AS (
    INSERT INTO leasequeue_job (seq, queue_id, position, rank, state, created_at, deliveries, dead_at, source_queue,
        source_seq, max_deliveries, result_ttl_ms, key, name, tag, origin, data, meta, body, progress, errors, error_type,
        error, fingerprint, expires_at)
    SELECT n.new_seq, target.id, n.new_seq, CASE WHEN target.type = 'log' THEN n.rank ELSE 0 END,
        CASE WHEN target.type = 'log' THEN 4 ELSE 0 END, t.now, 0, t.now, q.id,
        n.seq, CASE WHEN target.type = 'log' THEN n.max_deliveries END,
        CASE WHEN target.type = 'log' THEN n.result_ttl_ms END, CASE WHEN EXISTS (SELECT FROM leasequeue_job k WHERE k.key = n.key AND k.queue_id = target.id)
            THEN NULL ELSE n.key END, n.name, n.tag, n.origin, n.data,
        COALESCE(n.meta, '{}') || jsonb_build_object('$dead_letter_from', q.name, '$dead_letter_deliveries', n.deliveries,
            '$dead_letter_src_seq', n.seq),
        n.body, n.progress, CASE WHEN n.new_type IS NULL THEN n.errors
            ELSE (CASE WHEN jsonb_array_length(COALESCE(n.errors, '[]')) >= 20 THEN n.errors - 0
            ELSE COALESCE(n.errors, '[]') END) || jsonb_build_object('at', t.now, 'node', n.node, 'deliveries',
            n.deliveries, 'type', n.new_type, 'message', n.new_error) END, n.type, COALESCE(n.new_error, n.error), n.print,
        CASE WHEN target.ttl_ms > 0 THEN t.now + target.ttl_ms * interval '1 ms' END
    FROM numbered n, q, target, t
    RETURNING seq, source_seq
), floors AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value)
    SELECT target.id, 0, 0, 0 FROM target WHERE target.type <> 'log' AND NOT EXISTS (
        SELECT FROM leasequeue_queuefloor f WHERE f.queue_id = target.id AND f.kind = 0 AND f.rank = 0)
    ON CONFLICT DO NOTHING
), counted AS (
    UPDATE leasequeue_queue q SET dead_lettered = q.dead_lettered + (SELECT count(*) FROM gone)
    WHERE q.id = %(queue)s AND EXISTS (SELECT FROM gone)
), uncounted AS (
    UPDATE leasequeue_topicstate s SET records = NULL, bytes = NULL FROM target WHERE s.queue_id = target.id
        AND s.records IS NOT NULL
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, node, deliveries, claim, enqueued_at,
        deadline, name, detail)
    SELECT t.txid, t.now, n.queue_id, n.seq, k.kind, n.node, n.deliveries, n.claim, n.created_at, n.deadline, n.name,
        CASE WHEN k.kind <> 7 THEN jsonb_build_object('error_type', n.type, 'fingerprint', n.print) END
            || CASE WHEN k.kind = 8 THEN jsonb_build_object('to', target.name, 'to_seq', n.new_seq) ELSE '{}' END
    FROM numbered n CROSS JOIN t CROSS JOIN target CROSS JOIN LATERAL (
        SELECT CASE WHEN n.new_type IS NULL THEN 4 ELSE 7 END AS kind WHERE n.state = 2 UNION ALL SELECT 8) k
), wake AS MATERIALIZED (
    SELECT CASE WHEN pg_try_advisory_lock(1280657731, target.id::int)
        THEN pg_advisory_unlock(1280657731, target.id::int)::text
        ELSE pg_notify('leasequeue', 'q' || target.id)::text END AS sent
    FROM target WHERE EXISTS (SELECT FROM new)
)
SELECT n.seq, n.new_seq, n.key, n.name, n.deliveries, (SELECT sent FROM wake),
    CASE WHEN n.reply_to IS NOT NULL THEN (SELECT string_agg(pg_notify(c, n.seq || ':2:' || COALESCE(n.key, ''))::text, '')
        FROM string_to_table(n.reply_to, ' ') c) END
FROM numbered n
