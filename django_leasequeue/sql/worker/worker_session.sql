-- Purpose: name a worker's connection for pg_stat_activity.
-- Parameters: name.
-- Index: none.
-- Pages: none.
SELECT set_config('application_name', left(%(name)s::text, 63), false)
