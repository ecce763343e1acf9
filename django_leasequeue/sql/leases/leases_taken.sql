-- Purpose: tell workers that leases of these queues were taken from them: they look at once at what they hold of them.
-- Parameters: queues (ids).
-- Pages: none: notifications.
SELECT pg_notify('leasequeue', 'l' || u.id)::text FROM unnest(%(queues)s::bigint[]) AS u(id)
