-- Purpose: remove live jobs of a deleted queue, a bounded batch at a time, and write their end into the lease log.
--   Locked jobs wait for the next time. Their events for limits and workflows of other queues, and the events of that
--   queue, move to another queue, if there is one.
-- Parameters: queue (its id), size, now.
-- Index: of each place the one that begins with the queue; leasequeue_job_pkey, leasequeue_attempt_job,
--   leasequeue_queue_pkey, leasequeue_member_pkey, leasequeue_flowturn_due.
-- Pages: 20 + 0.2 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now, {txid()} AS txid), ready_rows AS MATERIALIZED (
    SELECT ctid AS place, seq, deliveries FROM leasequeue_ready WHERE queue_id = %(queue)s LIMIT %(size)s::int
        FOR UPDATE SKIP LOCKED
), delayed_rows AS MATERIALIZED (
    SELECT seq, deliveries FROM leasequeue_delayed WHERE queue_id = %(queue)s LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), letter_rows AS MATERIALIZED (
    SELECT seq, deliveries, in_place FROM leasequeue_deadletter WHERE queue_id = %(queue)s LIMIT %(size)s::int
        FOR UPDATE SKIP LOCKED
), record_rows AS MATERIALIZED (
    SELECT ctid AS place, seq FROM leasequeue_record WHERE queue_id = %(queue)s LIMIT %(size)s::int
        FOR UPDATE SKIP LOCKED
), claim_rows AS MATERIALIZED (
    SELECT ctid AS place, token, node, seqs, deliveries FROM leasequeue_claim WHERE queue_id = %(queue)s
    LIMIT 1 + %(size)s::int / 1000 FOR UPDATE SKIP LOCKED
), ready AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM ready_rows))
), delayed AS (
    DELETE FROM leasequeue_delayed WHERE seq = ANY (ARRAY(SELECT seq FROM delayed_rows))
), dead_letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM letter_rows))
), records AS (
    DELETE FROM leasequeue_record WHERE ctid = ANY (ARRAY(SELECT place FROM record_rows))
), claims AS (
    DELETE FROM leasequeue_claim WHERE ctid = ANY (ARRAY(SELECT place FROM claim_rows))
), ends AS MATERIALIZED (
    SELECT seq, deliveries, NULL::bigint AS token, NULL::text AS node FROM ready_rows
    UNION ALL SELECT seq, deliveries, NULL, NULL FROM delayed_rows
    UNION ALL SELECT seq, deliveries, NULL, NULL FROM letter_rows WHERE in_place
    UNION ALL SELECT u.seq, COALESCE(u.deliveries, 1), claim_rows.token, claim_rows.node
    FROM claim_rows CROSS JOIN LATERAL unnest(claim_rows.seqs, claim_rows.deliveries) AS u(seq, deliveries)
), seqs AS MATERIALIZED (
    SELECT seq FROM ends UNION SELECT seq FROM record_rows UNION SELECT seq FROM letter_rows
), heir AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE type = 'queue' ORDER BY id LIMIT 1
), turns AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
    SELECT heir.id, 'epoch', {turn.LOOK}, array_agg(seqs.seq) FROM heir, seqs CROSS JOIN LATERAL (
        SELECT FROM leasequeue_member m WHERE m.seq = seqs.seq OFFSET 0) m GROUP BY heir.id
), given AS (
    UPDATE leasequeue_flowturn SET queue_id = (SELECT id FROM heir)
    WHERE queue_id = %(queue)s AND kind <> {turn.JOIN} AND EXISTS (SELECT FROM heir)
), over AS (
    DELETE FROM leasequeue_flowturn WHERE queue_id = %(queue)s AND (kind = {turn.JOIN} OR NOT EXISTS (SELECT FROM heir))
), members AS (
    DELETE FROM leasequeue_member WHERE seq = ANY (ARRAY(SELECT seq FROM seqs)) AND NOT EXISTS (SELECT FROM heir)
), jobs AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM seqs)) AND {removing()}
    RETURNING seq, key, name, reply_to
), attempts AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM seqs))
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, low, high, kind, node, name, seqs,
        deliveries, detail)
    SELECT clock.txid, clock.now, %(queue)s::bigint, e.token, min(e.seq), max(e.seq), {event.CANCELLED}, e.node, e.name,
        array_agg(e.seq ORDER BY e.seq), array_agg(e.deliveries ORDER BY e.seq),
        jsonb_build_object('reason', 'queue_deleted')
    FROM clock, (SELECT ends.*, jobs.name, (row_number() OVER () - 1) / 1000 AS part
        FROM ends LEFT JOIN jobs ON jobs.seq = ends.seq) e
    GROUP BY clock.txid, clock.now, e.token, e.node, e.name, e.part
)
SELECT (SELECT count(*) FROM seqs), (SELECT count({tell_callers(jobs, {result.CANCELLED})}) FROM jobs
    WHERE jobs.reply_to IS NOT NULL AND jobs.seq = ANY (ARRAY(SELECT seq FROM ends)))
