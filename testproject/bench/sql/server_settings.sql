-- Purpose: the server's settings that change figures.
SELECT name, current_setting(name) FROM unnest(ARRAY['server_version', 'fsync', 'synchronous_commit', 'full_page_writes',
    'wal_level', 'wal_compression', 'shared_buffers', 'max_wal_size', 'synchronous_standby_names', 'max_connections']) AS u(name)
