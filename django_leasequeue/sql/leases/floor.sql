-- Purpose: raise floors. A caller proposes the lowest live value that it saw, with a mark, a transaction id of its own
--   that is drawn after that; when every transaction below the mark has ended, nothing lower can appear any more but
--   what is there now. So: raise to the proposed value, or to what is lower by then; and propose anew. (Who draws a
--   number of a job has a transaction id by then. A snapshot's xmax is no mark: it is only one more than the last that
--   ended, and transactions beyond it may be running.) Times are held 5 seconds back. Of a queue in which there is
--   nothing they are raised every 10 seconds only. A floor of times that is less than 5 seconds behind proves that the
--   clock went back: it is removed, and so are proposals. The commit does not wait for the disk, nor do enqueues wait
--   behind it: a floor that a crash forgets is raised again.
-- Parameters: queues (ids; null: all); the server process and the start of its server that answered the caller last
--   (pid, started): of another one, what follows counts for nothing, since it may draw the same numbers again; arrays
--   of equal length, what the caller proposed before: ids, kinds, ranks, lows, marks; head (the first number that had
--   not been drawn when the caller asked last, for queues where nothing waits: one that is read here may have been
--   drawn after the snapshot, by a transaction that the mark does not cover); now, autocommit.
-- Index: leasequeue_rank_place, leasequeue_floor_place, leasequeue_ready_pkey, leasequeue_delayed_due,
--   leasequeue_claim_deadline, each from the floor on.
-- Pages: 60 + 7 a row
-- Returns: the fields of Floor; mark is null in a transaction that had an id before.
WITH clock AS MATERIALIZED (
    SELECT {now()} AS now, (extract(epoch FROM {now()} - interval '5 seconds') * 1000000)::bigint AS limit,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
        pg_current_xact_id_if_assigned() IS NULL AS marks,
        COALESCE(pg_sequence_last_value('leasequeue_job_seq_seq'::regclass), 0) + 1 AS head,
        CASE WHEN pg_backend_pid() = %(pid)s::int AND pg_postmaster_start_time() = %(started)s::timestamptz
            THEN %(head)s::bigint END AS known,
        CASE WHEN %(autocommit)s::bool THEN set_config('synchronous_commit', 'off', true) END
), places AS MATERIALIZED (
    SELECT DISTINCT k.queue_id, {floor.READY} AS kind, k.rank::int AS rank FROM leasequeue_queuerank k
    WHERE %(queues)s::bigint[] IS NULL OR k.queue_id = ANY (%(queues)s::bigint[])
    UNION ALL
    SELECT q.id, kind, 0 FROM leasequeue_queue q, (VALUES ({floor.DELAYED}), ({floor.CLAIM})) AS v(kind)
    WHERE q.type = 'queue' AND (%(queues)s::bigint[] IS NULL OR q.id = ANY (%(queues)s::bigint[]))
), floors AS MATERIALIZED (
    SELECT places.*, COALESCE(v.value, 0) AS made, CASE WHEN places.kind = {floor.READY}
        OR v.value <= clock.limit THEN COALESCE(v.value, 0) ELSE 0 END AS value, v.made_at, a.low AS proposed, a.mark
    FROM clock CROSS JOIN places LEFT JOIN LATERAL (SELECT f.value, f.made_at FROM leasequeue_queuefloor f
        WHERE f.queue_id = places.queue_id AND f.kind = places.kind
        AND f.rank = places.rank ORDER BY f.value DESC LIMIT 1) v ON true
    LEFT JOIN ROWS FROM (unnest(%(ids)s::bigint[]), unnest(%(kinds)s::int[]), unnest(%(ranks)s::int[]),
        unnest(%(lows)s::bigint[]), unnest(%(marks)s::bigint[])) AS a(queue_id, kind, rank, low, mark)
        ON a.queue_id = places.queue_id AND a.kind = places.kind AND a.rank = places.rank AND clock.known IS NOT NULL
            AND (places.kind = {floor.READY} OR a.low <= clock.limit)
), seen AS MATERIALIZED (
    SELECT floors.*, clock.*, CASE floors.kind
        WHEN {floor.READY} THEN COALESCE((SELECT r.position FROM leasequeue_ready r
            WHERE r.queue_id = floors.queue_id AND r.rank = floors.rank
            AND r.lane = {FRESH} AND r.position >= floors.value ORDER BY r.position LIMIT 1), clock.known, 0)
        WHEN {floor.DELAYED} THEN LEAST(clock.limit, (SELECT (extract(epoch FROM d.available_at) * 1000000)::bigint
            FROM leasequeue_delayed d
            WHERE d.queue_id = floors.queue_id
                AND d.available_at >= 'epoch'::timestamptz + floors.value * interval '1 us'
            ORDER BY d.available_at LIMIT 1))
        ELSE LEAST(clock.limit, (SELECT (extract(epoch FROM c.deadline) * 1000000)::bigint FROM leasequeue_claim c
            WHERE c.queue_id = floors.queue_id AND c.deadline >= 'epoch'::timestamptz + floors.value * interval '1 us'
            ORDER BY c.deadline LIMIT 1)) END AS low
    FROM floors, clock
), decided AS MATERIALIZED (
    SELECT seen.*, CASE WHEN seen.mark <= seen.xmin AND (seen.made_at IS NULL
        OR seen.made_at < seen.now - interval '10 seconds'
            OR bool_or(seen.low <> CASE seen.kind WHEN {floor.READY} THEN seen.known ELSE seen.limit END
                OR seen.kind = {floor.READY} AND (SELECT true FROM leasequeue_ready r
                    WHERE r.queue_id = seen.queue_id AND r.rank = seen.rank
                    AND r.lane = {AGAIN} ORDER BY r.position LIMIT 1)) OVER (PARTITION BY seen.queue_id))
        THEN GREATEST(seen.value, LEAST(seen.proposed, seen.low)) ELSE seen.value END AS floor FROM seen
), fallen AS (
    DELETE FROM leasequeue_queuefloor WHERE id = ANY (ARRAY(
        SELECT o.id FROM (SELECT * FROM decided WHERE made > value OFFSET 0) y CROSS JOIN LATERAL (
            SELECT f.id FROM leasequeue_queuefloor f WHERE f.queue_id = y.queue_id AND f.kind = y.kind
                AND f.rank = y.rank
                AND f.value > y.value ORDER BY f.value) o))
), raised AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at)
    SELECT queue_id, kind, rank, floor, now FROM decided WHERE floor > value
), old AS MATERIALIZED (
    SELECT o.id FROM decided CROSS JOIN LATERAL (
        SELECT f.id FROM leasequeue_queuefloor f WHERE f.queue_id = decided.queue_id AND f.kind = decided.kind
            AND f.rank = decided.rank
            AND f.value < decided.value ORDER BY f.value DESC LIMIT 10 FOR UPDATE SKIP LOCKED) o
    WHERE decided.floor > decided.value
), cleared AS (
    DELETE FROM leasequeue_queuefloor WHERE id = ANY (ARRAY(SELECT id FROM old))
)
SELECT queue_id, kind, rank, floor AS value, low, CASE WHEN marks THEN pg_current_xact_id()::text::bigint END AS mark,
    xmin AS oldest, head, pg_backend_pid() AS pid, pg_postmaster_start_time() AS started FROM decided
