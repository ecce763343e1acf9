-- tell_callers(job, state): notify the callers of a job of its outcome.
(SELECT string_agg(pg_notify(c, {job}.seq || ':{state}:' || COALESCE({job}.key, ''))::text, '')
    FROM string_to_table({job}.reply_to, ' ') c)
