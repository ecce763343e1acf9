-- Purpose: note on the lease log what retention has dropped. Readers compare with it where they stand; a dump keeps it.
--   Locks the log against other DDL only.
-- Literals: note.
COMMENT ON TABLE leasequeue_leaseevent IS {note}
