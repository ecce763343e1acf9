-- wake(queue): notify waiting workers of a queue, if its lock shows that there are any.
CASE WHEN pg_try_advisory_lock({lock.listeners}, {queue}::int)
    THEN pg_advisory_unlock({lock.listeners}, {queue}::int)::text
    ELSE pg_notify({channel.jobs}, 'q' || {queue})::text END
