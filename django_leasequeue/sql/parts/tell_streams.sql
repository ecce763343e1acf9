-- tell_streams(): notify the streams of the claims' jobs.
(SELECT count(pg_notify(split_part(connection, ':', 1), split_part(connection, ':', 2))::text)
    FROM claims WHERE connection IS NOT NULL)
