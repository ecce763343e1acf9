-- Purpose: end a bulk enqueue: make the jobs ready or delayed, write ranks and events, wake waiting workers.
-- Parameters: queue (id), type, seqs; arrays of that length or empty: ranks (empty: all have rank), dues (time of
--   delayed jobs, null: ready), flags, limits (max_deliveries), expires, tags, names (empty: all have name), tagged
--   (tags in meta, as JSON); rank, expire, name, log (write events), wake, relax (the queue does not ask to wait for
--   the disk), at (time of the batch), autocommit, alone.
-- Index: leasequeue_rank_place; inserts only.
-- Pages: 20 + 6 a row
{keeps_host_settings(inserts, and looks at the queue: no plan reads more)}
WITH jobs AS MATERIALIZED (
    SELECT i.seq, i.n, COALESCE(i.rank, %(rank)s::smallint) AS rank, i.due, COALESCE(i.flags, 0) AS flags,
        i.max_deliveries, COALESCE(i.expires_at, %(expire)s::timestamptz) AS expires_at, i.tag,
        COALESCE(i.name, %(name)s::text) AS name, i.tagged
    FROM ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(ranks)s::smallint[]), unnest(%(dues)s::timestamptz[]),
        unnest(%(flags)s::smallint[]), unnest(%(limits)s::int[]), unnest(%(expires)s::timestamptz[]),
        unnest(%(tags)s::text[]), unnest(%(names)s::text[]), unnest(%(tagged)s::text[])) WITH ORDINALITY
        AS i(seq, rank, due, flags, max_deliveries, expires_at, tag, name, tagged, n)
), ready AS (
    {into_ready()}
    SELECT %(queue)s::bigint, rank, {FRESH}, seq, seq, 0, flags, %(at)s::timestamptz, max_deliveries, expires_at, tag
    FROM jobs WHERE due IS NULL AND %(type)s::text = 'queue'
), delayed AS (
    {into_delayed()}
    SELECT seq, %(queue)s::bigint, due, 0, rank, flags, max_deliveries, expires_at, tag
    FROM jobs WHERE due IS NOT NULL AND %(type)s::text = 'queue'
), records AS (
    INSERT INTO leasequeue_record (queue_id, seq, expires_at, tag)
    SELECT %(queue)s::bigint, seq, expires_at, tag FROM jobs WHERE %(type)s::text = 'log'
), ranks AS (
    INSERT INTO leasequeue_queuerank (queue_id, rank)
    SELECT %(queue)s::bigint, r.rank FROM (SELECT DISTINCT rank FROM jobs) r
    WHERE %(type)s::text = 'queue' AND NOT EXISTS (
        SELECT FROM leasequeue_queuerank k WHERE k.queue_id = %(queue)s::bigint AND k.rank = r.rank)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT {txid()}, %(at)s::timestamptz, %(queue)s::bigint, min(seq), max(seq),
        {event.ENQUEUED}, name,
        array_agg(seq), CASE WHEN tagged IS NOT NULL THEN jsonb_build_object('tags', tagged::jsonb) END
    FROM jobs WHERE %(log)s::bool GROUP BY name, tagged, (n - 1) / 1000
)
SELECT {lazily(%(relax)s::bool)}, CASE WHEN %(wake)s::bool THEN {wake(%(queue)s::int)} END
