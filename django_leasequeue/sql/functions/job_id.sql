-- Purpose: the id of a job that was made of its number.
CREATE FUNCTION leasequeue_job_id(seq bigint, id_end text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT substr(lpad(to_hex(seq), 15, '0'), 1, 8) || '-' || substr(lpad(to_hex(seq), 15, '0'), 9, 4) || '-8'
        || substr(lpad(to_hex(seq), 15, '0'), 13, 3) || '-' || id_end
$$;
