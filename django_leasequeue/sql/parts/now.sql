-- now(): the time of the server, or a test's.
COALESCE(%(now)s::timestamptz, clock_timestamp())
