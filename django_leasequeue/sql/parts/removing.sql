-- removing(): lets the trigger of jobs pass what this statement removes.
(SELECT set_config('leasequeue.removes', statement_timestamp()::text, true)) IS NOT NULL
