-- Purpose: a made-up history for demonstrations and benchmarks, in COPY's text format; id and txid are the database's.
-- Index: inserts only.
COPY leasequeue_leaseevent (occurred_at, queue_id, claim, deadline, low, high, kind, node, name, seqs, deliveries,
    waited, ran, detail)
FROM STDIN
