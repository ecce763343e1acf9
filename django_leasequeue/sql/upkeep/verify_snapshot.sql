-- Purpose: the settings of a check of everything: whole tables are read, so let the planner scan them.
{keeps_host_settings(sets the planner for what follows)}
SELECT transaction_timestamp(), set_config('enable_seqscan', 'on', true), set_config('plan_cache_mode', 'auto', true)
