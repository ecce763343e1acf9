-- Purpose: an API key by the public part of its token.
-- Parameters: prefix, every (seconds between two notes of its use), now.
-- Index: leasequeue_apikey_prefix_key.
-- Pages: 30
-- Returns: id, name, digest, scopes, topics, project, rate_per_second, expires_at, whether it is revoked, whether its
--   use is to be noted.
SELECT id, name, digest, scopes::text[], topics::text[], project, rate_per_second, expires_at, revoked_at IS NOT NULL,
    last_used_at IS NULL OR last_used_at < {now()} - %(every)s::float8 * interval '1 s'
FROM leasequeue_apikey WHERE prefix = %(prefix)s
