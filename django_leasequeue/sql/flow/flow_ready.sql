-- Purpose: jobs that wait for nothing any more become ready. The caller holds their workflows (flow_lock.sql).
-- Parameters: seqs, now.
-- Index: leasequeue_delayed_pkey, leasequeue_job_pkey.
-- Pages: 40 + 20 a row
WITH gone AS (
    DELETE FROM leasequeue_delayed d WHERE d.seq = ANY (%(seqs)s::bigint[])
        AND (d.available_at >= {HELD}) IS TRUE RETURNING d.*
), ready AS (
    {into_ready()}
    SELECT g.queue_id, g.rank, {AGAIN}, (SELECT COALESCE(j.position, j.seq) FROM leasequeue_job j WHERE j.seq = g.seq),
        g.seq, g.deliveries, g.flags & ~{KEEPS_SLOT|PUT_OFF}, {now()}, g.max_deliveries, g.expires_at, g.tag
    FROM gone g
), wake AS MATERIALIZED (
    SELECT {wake(w.queue_id)} AS sent FROM (SELECT DISTINCT queue_id FROM gone) w
)
SELECT g.seq, (SELECT count(sent) FROM wake) FROM gone g
