-- Purpose: the sums that the archive of a range of the lease log must have, one event a job.
-- Parameters: low, high (numbers of rows, exclusive above).
-- Index: none: reads the range's partition.
-- Pages: whole tables: the partition that is asked for.
-- Returns: events; sums of their id, txid, seq, kind; lowest and highest txid; first and last time.
SELECT COALESCE(sum(n), 0)::bigint, sum(id::numeric * 1024 * n + n * (n - 1) / 2), sum(txid::numeric * n),
    sum((SELECT sum(s::numeric) FROM unnest(seqs) AS s)), sum(kind::numeric * n), min(txid), max(txid),
    min(occurred_at), max(occurred_at)
FROM (SELECT *, cardinality(seqs)::bigint AS n FROM leasequeue_leaseevent) e
WHERE id >= %(low)s::bigint AND id < %(high)s::bigint
