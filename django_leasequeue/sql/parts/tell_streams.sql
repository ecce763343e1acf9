-- tell_streams(): tell the streams that jobs of the claims k were leased to.
(SELECT count(pg_notify(split_part(k.connection, ':', 1), split_part(k.connection, ':', 2))::text)
    FROM k WHERE k.connection IS NOT NULL)
