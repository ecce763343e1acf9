-- lazily(may): in autocommit the commit does not wait for the disk where it may; that of several statements does if one
-- of them may not.
CASE WHEN NOT %(autocommit)s::bool THEN NULL
    WHEN {may} THEN CASE WHEN %(alone)s::bool OR COALESCE(current_setting('leasequeue.durable', true), '') = ''
        THEN set_config('synchronous_commit', 'off', true) END
    ELSE concat(CASE WHEN NOT %(alone)s::bool THEN set_config('leasequeue.durable', 'on', true) END,
        CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on',
            true) END) END
