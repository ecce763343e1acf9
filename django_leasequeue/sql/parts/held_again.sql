-- held_again(): jobs of the CTE gone, which were ready, wait for their limits again.
held AS (
    {into_delayed()}
    SELECT g.seq, g.queue_id, {HELD}, g.deliveries, g.rank, g.flags, g.max_deliveries, g.expires_at, g.tag FROM gone g
), waiting AS (
    UPDATE leasequeue_member SET taken = false, waits = true WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
)
