-- Purpose: take the locks that tell producers of these queues to notify.
-- Parameters: lock (its first key: notify_names), queues (ids). The locks belong to the session, once each;
--   notify_release gives them back.
-- Index: none, memory only. Never waits: a producer's test of a lock is one expression long, so that the next try gets
--   it.
SELECT u.id FROM unnest(%(queues)s::bigint[]) AS u(id) WHERE pg_try_advisory_lock_shared(%(lock)s::int, u.id::int)
