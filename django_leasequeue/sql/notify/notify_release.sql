-- Purpose: this session waits for these queues no more.
-- Parameters: queues (ids), each held by notify_hold.
-- Index: none, memory only.
-- Pages: none: locks.
SELECT pg_advisory_unlock_shared(1280657731, u.id::int) FROM unnest(%(queues)s::bigint[]) AS u(id)
