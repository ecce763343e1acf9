-- Purpose: release the locks of notify_hold.
-- Parameters: lock (its first key: notify_names), queues (ids), each held by notify_hold.
SELECT pg_advisory_unlock_shared(%(lock)s::int, u.id::int) FROM unnest(%(queues)s::bigint[]) AS u(id)
