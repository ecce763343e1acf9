-- Purpose: take jobs out that nobody has started: ready or delayed ones leave, others stay.
-- Parameters: project, queue, keys or seqs (the other one empty); now.
-- Index: leasequeue_job_key, leasequeue_job_pkey, leasequeue_topicstate_pkey. Waits for a concurrent claim and then sees its lease: never both.
-- Returns: seq, key, name, reply_to told or not.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), q AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), d AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j, q WHERE j.seq = ANY (ARRAY(
            SELECT unnest(%(seqs)s::bigint[])
            UNION SELECT k.seq FROM leasequeue_job k, q WHERE k.key = ANY (%(keys)s::text[]) AND k.queue_id = q.id))
        AND j.queue_id = q.id AND j.state IN (0, 1)
    ORDER BY j.seq FOR UPDATE OF j
), gone AS (
    DELETE FROM leasequeue_job j USING t WHERE j.seq = ANY (ARRAY(SELECT seq FROM d)) AND j.state IN (0, 1)
    RETURNING j.seq, j.queue_id, j.key, j.name, j.deliveries, j.created_at, j.reply_to, t.now
), remembered AS (
    INSERT INTO leasequeue_topicstate AS s (queue_id, head_seq, last_write_at)
    SELECT queue_id, max(seq), max(created_at) FROM gone GROUP BY queue_id
    ON CONFLICT (queue_id) DO UPDATE SET head_seq = GREATEST(s.head_seq, excluded.head_seq),
        last_write_at = GREATEST(s.last_write_at, excluded.last_write_at), records = NULL, bytes = NULL
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, deliveries, enqueued_at, name)
    SELECT pg_current_xact_id()::text::bigint, g.now, g.queue_id, g.seq, 10, g.deliveries, g.created_at, g.name FROM gone g
)
SELECT g.seq, g.key, g.name, CASE WHEN g.reply_to IS NOT NULL
    THEN (SELECT string_agg(pg_notify(c, g.seq || ':3:' || COALESCE(g.key, ''))::text, '')
        FROM string_to_table(g.reply_to, ' ') c) END
FROM gone g
