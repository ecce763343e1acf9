-- Purpose: read through indexes for the rest of the transaction, as our own connections always do: a host's
--   connection may read the whole table where a planner trusts a limit.
-- Parameters: seqscan ('off', or what it was, to put it back).
-- Index: none.
-- Returns: what it was.
SELECT current_setting('enable_seqscan'), set_config('enable_seqscan', %(seqscan)s::text, true)
