-- lazily(may): in autocommit the commit does not wait for the disk where it may.
CASE WHEN %(autocommit)s::bool AND {may} THEN set_config('synchronous_commit', 'off', true)
    WHEN %(autocommit)s::bool AND current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END
