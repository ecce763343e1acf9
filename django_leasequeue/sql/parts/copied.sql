-- copied(): whether the rows of this database were written elsewhere: the newest row of the timelines by another
-- transaction than it names, on a later timeline or on another system; null where there is none. Index:
-- leasequeue_timeline_pkey.
(SELECT l.xmin::text::bigint <> l.mark & 4294967295
        OR CASE WHEN NOT pg_is_in_recovery() THEN l.timeline > {timeline()} ELSE false END
        OR (l.system <> leasequeue_system() AND '' NOT IN (l.system, leasequeue_system()))
    FROM leasequeue_timeline l ORDER BY l.timeline DESC LIMIT 1)
