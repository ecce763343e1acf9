-- Purpose: the last event of a partition of the lease log, in the order in which the lake reads: it is gone with the
--   partition. A sample of pages says where to look, and the BRIN index on txid leaves only what lies behind.
-- Names: partition.
-- Returns: txid, id; nothing if the partition is empty.
WITH seen AS MATERIALIZED (
    SELECT max(txid) AS txid FROM {partition} TABLESAMPLE SYSTEM (1)
)
SELECT e.txid, e.id FROM {partition} e WHERE e.txid >= COALESCE((SELECT txid FROM seen), 0)
ORDER BY e.txid DESC, e.id DESC LIMIT 1
