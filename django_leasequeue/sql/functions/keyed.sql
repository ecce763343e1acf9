-- Purpose: what leads from keys to jobs, given ones and those that were made of numbers.
-- Index: leasequeue_job_key, leasequeue_job_pkey.
CREATE FUNCTION leasequeue_keyed(keys text[]) RETURNS TABLE (seq bigint, queue_id bigint) LANGUAGE sql STABLE AS $$
    SELECT j.seq, j.queue_id FROM leasequeue_job j WHERE j.key = ANY (keys) AND NOT j.generated
    UNION ALL
    SELECT j.seq, j.queue_id FROM leasequeue_job j
    WHERE j.seq = ANY (leasequeue_id_numbers(keys)) AND j.generated AND j.key = ANY (keys)
$$;
