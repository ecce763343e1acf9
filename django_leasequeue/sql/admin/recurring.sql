-- Purpose: recurring tasks, the next due first, each with the job of its last tick: what was enqueued by the transaction that
--   changed the row last.
-- Parameters: size, now.
-- Index: leasequeue_event_txid (BRIN) of each partition, read for one transaction a task; one entry of each place of a job.
-- Pages: 40 + 110 a row
-- Host: as upkeep/plans.sql set the planner: BRIN needs bitmaps.
-- Returns: id, name, schedule, timezone, task, backend, queue name, whether it is enabled and from the settings, last and next
--   tick, seconds that it is overdue (below 0: not yet; null: nothing is planned), number of the last tick's job (null: not known), its
--   state (of the result + 10; null: it has ended, and nothing is kept of it).
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next
), r AS MATERIALIZED (
    SELECT r.*, r.xmin::text::bigint + ((t.next - r.xmin::text::bigint) >> 32 << 32) AS txid, t.now
    FROM t, leasequeue_recurringtask r ORDER BY r.next_tick_at NULLS LAST, r.name LIMIT %(size)s::int
)
SELECT r.id, r.name, r.schedule, r.timezone, r.task, r.backend, r.queue_name, r.enabled, r.from_settings, r.last_tick_at, r.next_tick_at,
    extract(epoch FROM r.now - r.next_tick_at)::float8, e.seq, s.state::int
FROM r LEFT JOIN LATERAL (
    SELECT v.seqs[1] AS seq FROM leasequeue_leaseevent v
    WHERE r.last_tick_at IS NOT NULL AND v.txid = r.txid AND v.kind = 1 AND v.name = r.task LIMIT 1) e ON true
LEFT JOIN LATERAL (
    SELECT CASE WHEN f.state IS NOT NULL THEN f.state + 10 WHEN d.in_place THEN 3
        WHEN EXISTS (SELECT FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq))) THEN 0
        WHEN EXISTS (SELECT FROM leasequeue_delayed w WHERE w.seq = j.seq OFFSET 0) THEN 1 ELSE 2 END AS state
    FROM (SELECT * FROM leasequeue_job j WHERE j.seq = e.seq OFFSET 0) j
    LEFT JOIN LATERAL (SELECT f.state FROM leasequeue_jobresult f WHERE f.seq = j.seq OFFSET 0) f ON true
    LEFT JOIN LATERAL (SELECT d.in_place FROM leasequeue_deadletter d WHERE d.seq = j.seq OFFSET 0) d ON true) s ON true
ORDER BY r.next_tick_at NULLS LAST, r.name
