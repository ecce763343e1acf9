-- Purpose: note the jobs of ticks of recurring tasks, whose rows the transaction has locked, or why there are none. A
--   schedule without a next tick, or with all its runs, ends.
-- Parameters: arrays of equal length ids, ticks, nexts (null: none), seqs (null: no job here); error (of all; empty:
--   they were enqueued); now.
-- Index: leasequeue_recurringtask_pkey.
-- Pages: 30 + 30 a row
UPDATE leasequeue_recurringtask r SET last_tick_at = i.tick, runs = r.runs + (%(error)s::text = '')::int,
    next_tick_at = CASE WHEN r.runs + (%(error)s::text = '')::int >= r.times THEN NULL ELSE i.next END,
    ended_at = CASE WHEN i.next IS NULL OR r.runs + (%(error)s::text = '')::int >= r.times THEN {now()} END,
    last_seq = COALESCE(i.seq, r.last_seq),
    last_error = %(error)s::text, failed_at = CASE WHEN %(error)s::text <> '' THEN {now()} END
FROM ROWS FROM (unnest(%(ids)s::bigint[]), unnest(%(ticks)s::timestamptz[]), unnest(%(nexts)s::timestamptz[]),
    unnest(%(seqs)s::bigint[])) AS i(id, tick, next, seq)
WHERE r.id = i.id
RETURNING r.id
