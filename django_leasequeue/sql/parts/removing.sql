-- removing(): allow this statement to delete jobs in spite of the trigger.
(SELECT set_config('leasequeue.removes', statement_timestamp()::text, true)) IS NOT NULL
