-- Purpose: notify workers that leases of these queues were taken, so that they check their held jobs at once.
-- Parameters: queues (ids).
SELECT pg_notify({channel.jobs}, 'l' || u.id)::text FROM unnest(%(queues)s::bigint[]) AS u(id)
