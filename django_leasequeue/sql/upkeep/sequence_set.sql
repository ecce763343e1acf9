-- Purpose: set a sequence forward, never back.
-- Parameters: sequence (name), highest (the number in use).
SELECT setval(%(sequence)s::text::regclass,
    GREATEST(%(highest)s::bigint, pg_sequence_last_value(%(sequence)s::text::regclass)))
