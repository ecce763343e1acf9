-- Purpose: the identifier of the database system; empty where a provider does not let roles see it.
CREATE FUNCTION leasequeue_system() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT system_identifier::text FROM pg_control_system());
EXCEPTION WHEN insufficient_privilege THEN
    RETURN '';
END
$$;
