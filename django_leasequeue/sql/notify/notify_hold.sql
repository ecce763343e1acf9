-- Purpose: say that somebody waits for these queues: producers then notify.
-- Parameters: queues (ids). The locks belong to the session, once each; notify_release gives them back.
-- Index: none, memory only. Waits at most for a producer's test of the lock, which is one expression long.
-- Pages: none: locks.
SELECT pg_advisory_lock_shared(1280657731, u.id::int)::text FROM unnest(%(queues)s::bigint[]) AS u(id)
