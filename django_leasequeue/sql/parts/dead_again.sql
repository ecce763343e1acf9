-- dead_again(): a job that died here before has one dead letter, of its last death.
ON CONFLICT (seq) DO UPDATE SET dead_at = excluded.dead_at, expires_at = excluded.expires_at, in_place = true,
    deliveries = excluded.deliveries, error_type = excluded.error_type, error = excluded.error,
        fingerprint = excluded.fingerprint
