-- Purpose: the settings of a reaper's connection: a name for pg_stat_activity, no statement that hangs, and a server
--   that notices when this machine has vanished (in half a minute, not in two hours), so that another reaper takes
--   over.
SELECT set_config('application_name', 'leasequeue reaper', false), set_config('lock_timeout', '1s', false),
    set_config('statement_timeout', '10min', false), set_config('idle_session_timeout', '0', false),
    set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '30000', false)
