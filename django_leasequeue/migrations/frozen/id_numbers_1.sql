CREATE FUNCTION leasequeue_id_numbers(keys text[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(('x0' || substr(k, 1, 8) || substr(k, 10, 4) || substr(k, 16, 3))::bit(64)::bigint)
    FROM unnest(keys) AS k
    WHERE k ~ '^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'
$$;
