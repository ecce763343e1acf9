-- Purpose: delayed jobs whose time has come become ready, or wait for their limit or workflow, with a turn for who
--   looks; those that go to the back, in the order of their times. For that one statement at a time does it (an
--   advisory lock; not in a caller's transaction, which would keep it): the next one finds the rest.
-- Parameters: queues (ids), size (jobs per queue), now, autocommit, alone.
-- Index: leasequeue_delayed_due from the floor on, leasequeue_delayed_pkey; leasequeue_job_pkey where jobs go to the
--   back.
-- Pages: 40 + 20 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now, pg_current_xact_id() AS xid), queues AS MATERIALIZED (
    SELECT q.id, q.requeue, q.leases_durable,
        CASE WHEN %(autocommit)s::bool AND q.requeue = 'back' THEN pg_try_advisory_xact_lock({lock.due}, q.id::int)
            ELSE true END AS ours, {since(q.id, {floor.DELAYED})} AS since
    FROM leasequeue_queue q WHERE q.id = ANY (%(queues)s::bigint[])
), due AS MATERIALIZED (
    SELECT d.seq, d.flags FROM queues CROSS JOIN LATERAL (
        SELECT d.seq, d.flags FROM leasequeue_delayed d
        WHERE queues.ours AND d.queue_id = queues.id AND d.available_at >= queues.since
            AND d.available_at <= (SELECT now FROM clock)
        ORDER BY d.available_at, d.seq LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) d
), gone AS (
    DELETE FROM leasequeue_delayed WHERE seq = ANY (ARRAY(SELECT seq FROM due WHERE flags & {FLOW} = 0)) RETURNING *
), held AS (
    -- A limit or a workflow says when these may start.
    UPDATE leasequeue_delayed SET available_at = {HELD}
    WHERE seq = ANY (ARRAY(SELECT seq FROM due WHERE flags & {FLOW} <> 0)) RETURNING seq, queue_id
), turns AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
    SELECT h.queue_id, 'epoch', {turn.LOOK}, array_agg(h.seq) FROM held h GROUP BY h.queue_id
), promoted AS MATERIALIZED (
    -- Sorted after the join, which may turn the order round: the back of the queue is reached in the order of the due
    -- times.
    SELECT g.*, CASE WHEN g.back THEN nextval('leasequeue_job_seq_seq')
        ELSE (SELECT COALESCE(j.position, j.seq) FROM leasequeue_job j WHERE j.seq = g.seq) END AS position
    FROM (SELECT gone.*, queues.requeue = 'back' AS back FROM gone JOIN queues ON queues.id = gone.queue_id
        ORDER BY gone.available_at, gone.seq) g
), moved AS (
    UPDATE leasequeue_job j SET position = promoted.position FROM promoted
    WHERE j.seq = promoted.seq AND j.seq = ANY (ARRAY(SELECT seq FROM promoted WHERE back))
), ready AS (
    {into_ready()}
    SELECT queue_id, rank, CASE WHEN back THEN {FRESH} ELSE {AGAIN} END, position, seq, deliveries, flags & ~{PUT_OFF},
        available_at, max_deliveries, expires_at, tag
    FROM promoted
), wake AS MATERIALIZED (
    SELECT {wake(w.queue_id)} AS sent FROM (SELECT queue_id FROM promoted UNION SELECT queue_id FROM held) w
)
SELECT d.seq, d.queue_id, (SELECT count(sent) FROM wake), (SELECT {lazily(bool_and(NOT leases_durable))} FROM queues)
FROM (SELECT seq, queue_id FROM promoted UNION ALL SELECT seq, queue_id FROM held) d
