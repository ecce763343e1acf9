-- Purpose: waiters leave without their jobs.
-- Parameters: ids.
-- Index: leasequeue_claimwaiter_pkey, leasequeue_claim_pkey.
-- Pages: 50
-- Returns: node, claim (token) and jobs of those that were dealt to: to be released.
WITH waiters AS MATERIALIZED (
    DELETE FROM leasequeue_claimwaiter WHERE id = ANY (%(ids)s::bigint[]) RETURNING claim
)
SELECT c.node, c.token, c.seqs FROM leasequeue_claim c WHERE c.token = ANY (ARRAY(SELECT claim FROM waiters))
