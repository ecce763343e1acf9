-- Purpose: begin a transaction that only the leader may commit. The term is locked as a key: beats go on, and a new
--   term waits for the end of the transaction. So the server ends it when its client falls silent or a statement takes
--   too long.
-- Parameters: term, holder, idle (ms between two statements), statement (ms of one).
-- Index: leasequeue_reaperterm_pkey.
-- Pages: 10
-- Returns: a row if the term is still this holder's.
SELECT set_config('idle_in_transaction_session_timeout', %(idle)s::int || 'ms', true),
    set_config('statement_timeout', %(statement)s::int || 'ms', true)
FROM (SELECT term FROM leasequeue_reaperterm
    WHERE term = %(term)s::bigint AND holder = %(holder)s::text FOR KEY SHARE OFFSET 0) held
