-- Purpose: read through indexes, BRIN ones too, for the rest of the transaction: a host's connection may read the whole
--   table where a planner trusts a limit, and compile a statement that does not.
-- Parameters: seqscan, bitmapscan, jit ('off' and 'on', or what they were, to put them back).
{keeps_host_settings(sets the planner for what follows)}
SELECT current_setting('enable_seqscan'), current_setting('enable_bitmapscan'), current_setting('jit'),
    set_config('enable_seqscan', %(seqscan)s::text, true), set_config('enable_bitmapscan', %(bitmapscan)s::text, true),
    set_config('jit', %(jit)s::text, true)
