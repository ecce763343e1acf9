-- Purpose: end a bulk enqueue of ready jobs that differ in nothing but their payloads: bulk_close.sql for the common case.
-- Parameters: queue (id), seqs (at most 1,000), rank, expire, name, log (write an event), relax (the queue does not ask to wait for
--   the disk), at (time of the batch), autocommit.
-- Index: leasequeue_rank_place; inserts only.
-- Pages: 20 + 6 a row
-- Host: inserts, and looks at the queue: no plan reads more.
-- Returns: one row.
WITH ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, expires_at)
    SELECT %(queue)s::bigint, %(rank)s::smallint, 2, seq, seq, 0, 0, %(at)s::timestamptz, %(expire)s::timestamptz
    FROM unnest(%(seqs)s::bigint[]) AS i(seq)
), ranks AS (
    INSERT INTO leasequeue_queuerank (queue_id, rank)
    SELECT %(queue)s::bigint, %(rank)s::smallint WHERE NOT EXISTS (
        SELECT FROM leasequeue_queuerank k WHERE k.queue_id = %(queue)s::bigint AND k.rank = %(rank)s::smallint)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs)
    SELECT pg_current_xact_id()::text::bigint, %(at)s::timestamptz, %(queue)s::bigint, e.seqs[1], e.seqs[cardinality(e.seqs)], 1,
        %(name)s::text, e.seqs
    FROM (SELECT %(seqs)s::bigint[] AS seqs) e WHERE %(log)s::bool
)
SELECT {lazily(%(relax)s::bool)}, {wake(%(queue)s::int)}
