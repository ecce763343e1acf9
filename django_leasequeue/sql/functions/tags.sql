-- Purpose: the tags in a job's metadata; null without any. (An index is made of it: its text names no function of ours,
--   and jobs without metadata cost no call.)
CREATE FUNCTION leasequeue_tags(meta json) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    IF strpos(meta::text, '"$tags"') = 0 THEN
        RETURN NULL;
    END IF;
    BEGIN
        RETURN meta::jsonb -> '$tags';
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
        RETURN NULL;
    END;
END
$$;
