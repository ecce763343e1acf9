-- Purpose: the archived and verified slices of the lease log.
-- Index: none: one row per partition that ever was.
-- Pages: whole tables: one row a partition that ever was.
SELECT low FROM leasequeue_lakeslice WHERE state <> 'planned' ORDER BY low
