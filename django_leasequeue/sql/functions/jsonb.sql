-- Purpose: a payload as jsonb; null where jsonb cannot hold what json can: U+0000, a lone surrogate, a number out of
--   range, too many levels.
CREATE FUNCTION leasequeue_jsonb(value json) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN value::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;
