-- tell_callers(job, state): tell who waits for a job that it ended so.
(SELECT string_agg(pg_notify(c, {job}.seq || ':{state}:' || COALESCE({job}.key, ''))::text, '')
    FROM string_to_table({job}.reply_to, ' ') c)
