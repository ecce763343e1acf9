-- Purpose: remove the jobs that stand somewhere in a queue that is gone, a bounded batch at a time. What is leased is left
--   for the next time. What limits and workflows of other queues have to learn of them, and the turns of that queue, become turns of
--   another queue; if there is none, nothing waits for them.
-- Parameters: queue (its id), size.
-- Index: of each place the one that begins with the queue; leasequeue_job_pkey, leasequeue_attempt_job,
--   leasequeue_queue_pkey, leasequeue_member_pkey, leasequeue_flowturn_due.
-- Pages: 20 + 0.2 a row
-- Returns: how many jobs went.
WITH r AS MATERIALIZED (
    SELECT ctid AS place, seq FROM leasequeue_ready WHERE queue_id = %(queue)s LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), d AS MATERIALIZED (
    SELECT seq FROM leasequeue_delayed WHERE queue_id = %(queue)s LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), l AS MATERIALIZED (
    SELECT seq FROM leasequeue_deadletter WHERE queue_id = %(queue)s LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), o AS MATERIALIZED (
    SELECT ctid AS place, seq FROM leasequeue_record WHERE queue_id = %(queue)s LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), c AS MATERIALIZED (
    SELECT ctid AS place, seqs FROM leasequeue_claim WHERE queue_id = %(queue)s
    LIMIT 1 + %(size)s::int / 1000 FOR UPDATE SKIP LOCKED
), ready AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM r))
), delayed AS (
    DELETE FROM leasequeue_delayed WHERE seq = ANY (ARRAY(SELECT seq FROM d))
), dead_letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM l))
), records AS (
    DELETE FROM leasequeue_record WHERE ctid = ANY (ARRAY(SELECT place FROM o))
), claims AS (
    DELETE FROM leasequeue_claim WHERE ctid = ANY (ARRAY(SELECT place FROM c))
), s AS MATERIALIZED (
    SELECT seq FROM r UNION SELECT seq FROM d UNION SELECT seq FROM o UNION SELECT unnest(c.seqs) FROM c
    UNION SELECT l.seq FROM l
), h AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE type = 'queue' ORDER BY id LIMIT 1
), turns AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
    SELECT h.id, 'epoch', 2, array_agg(s.seq) FROM h, s CROSS JOIN LATERAL (
        SELECT FROM leasequeue_member m WHERE m.seq = s.seq OFFSET 0) m GROUP BY h.id
), given AS (
    UPDATE leasequeue_flowturn SET queue_id = (SELECT id FROM h) WHERE queue_id = %(queue)s AND kind <> 1 AND EXISTS (SELECT FROM h)
), over AS (
    DELETE FROM leasequeue_flowturn WHERE queue_id = %(queue)s AND (kind = 1 OR NOT EXISTS (SELECT FROM h))
), members AS (
    DELETE FROM leasequeue_member WHERE seq = ANY (ARRAY(SELECT seq FROM s)) AND NOT EXISTS (SELECT FROM h)
), jobs AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM s)) AND {removing()}
), attempts AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM s))
)
SELECT count(*) FROM s
