-- Purpose: whether a worker still holds the lease of a job, after it could not record a step.
-- Parameters: seq, token, node, now.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey, in the function.
-- Pages: 30
{keeps_host_settings(the function has its own settings)}
SELECT true WHERE leasequeue_holds(%(seq)s::bigint, %(token)s::bigint, %(node)s::text, %(now)s::timestamptz, false)
