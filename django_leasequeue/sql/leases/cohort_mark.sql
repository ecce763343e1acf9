-- Purpose: note the claim of each waiter; the dealer's own rows leave.
-- Parameters: ids, claims (null: nothing) of the same order, own (ids), now.
-- Index: leasequeue_claimwaiter_pkey.
-- Pages: 100
WITH gone AS (
    DELETE FROM leasequeue_claimwaiter WHERE id = ANY (%(own)s::bigint[])
)
UPDATE leasequeue_claimwaiter x SET dealt_at = {now()}, claim = u.claim
FROM ROWS FROM (unnest(%(ids)s::bigint[]), unnest(%(claims)s::bigint[])) AS u(id, claim)
WHERE x.id = u.id AND NOT x.id = ANY (%(own)s::bigint[]) RETURNING x.id
