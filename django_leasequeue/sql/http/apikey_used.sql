-- Purpose: note that an API key is used, once a minute whatever the number of requests and processes.
-- Parameters: id, every (seconds), now.
-- Index: leasequeue_apikey_pkey.
-- Pages: 50
UPDATE leasequeue_apikey SET last_used_at = {now()}
WHERE id = %(id)s::bigint AND (last_used_at IS NULL OR last_used_at < {now()} - %(every)s::float8 * interval '1 s')
RETURNING id
