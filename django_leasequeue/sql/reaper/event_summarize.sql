-- Purpose: let the lease log's BRIN indexes know of what was written since the last vacuum: else each read of the log
--   walks over all of it. What is summed up already costs nothing.
-- Parameters: lock_timeout (ms): a vacuum that is at the table does the same, and is not to be cancelled for this.
-- Index: the BRIN indexes of each partition that this role owns.
-- Pages: whole tables, the part of the log that is not summed up yet.
WITH timeout AS MATERIALIZED (
    SELECT set_config('lock_timeout', (%(lock_timeout)s::int)::text || 'ms', true) AS set
), summaries AS MATERIALIZED (
    SELECT c.oid FROM timeout CROSS JOIN pg_inherits h JOIN pg_index i ON i.indrelid = h.inhrelid
    JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
    WHERE h.inhparent = 'leasequeue_leaseevent'::regclass AND NOT h.inhdetachpending AND a.amname = 'brin'
        AND c.relkind = 'i' AND i.indisvalid AND pg_has_role(c.relowner, 'USAGE') AND timeout.set IS NOT NULL
    ORDER BY c.oid
)
SELECT COALESCE(sum(brin_summarize_new_values(oid)), 0)::bigint FROM summaries
