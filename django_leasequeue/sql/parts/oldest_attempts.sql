-- oldest_attempts(condition): forget all but twenty failed attempts of the jobs in the CTE returned that meet it.
DELETE FROM leasequeue_attempt WHERE id = ANY (ARRAY(
    SELECT o.id FROM returned CROSS JOIN LATERAL (
        SELECT a.id FROM leasequeue_attempt a WHERE a.seq = returned.seq ORDER BY a.id + 0 DESC OFFSET 19
        LIMIT 100) o
    WHERE {condition}))
