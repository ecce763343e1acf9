-- wake(queue): tell who waits for jobs of a queue, unless somebody holds its lock: then nobody waits.
CASE WHEN pg_try_advisory_lock(1280657731, {queue}::int) THEN pg_advisory_unlock(1280657731, {queue}::int)::text
    ELSE pg_notify('leasequeue', 'q' || {queue})::text END
