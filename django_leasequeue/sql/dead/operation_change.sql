-- Purpose: pause, resume or cancel a bulk operation; waits for the current batch.
-- Parameters: id, sources (states in which it may be), state (the new one), now.
-- Index: leasequeue_bulkoperation_pkey.
-- Pages: 50
UPDATE leasequeue_bulkoperation o SET state = %(state)s::text, changed_at = {now()}, paced_at = NULL,
    finished_at = CASE WHEN %(state)s::text = 'cancelled' THEN {now()} END
WHERE o.id = %(id)s::bigint AND o.state = ANY (%(sources)s::text[])
RETURNING o.id, o.kind, o.project, o.queue, o.done, o.conflicts
