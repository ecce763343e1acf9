-- pays(flags, seq): whether a job that goes back does so by way of the delayed ones: each attempt is a start, which the rate of its limit
-- counts; one of a workflow that is being cancelled is taken out there.
CROSS JOIN LATERAL (SELECT {flags} & 128 <> 0 AND EXISTS (
    SELECT FROM (SELECT m.key FROM leasequeue_member m WHERE m.seq = {seq} OFFSET 0) m
    CROSS JOIN LATERAL (SELECT k.limit_id FROM leasequeue_limitkey k WHERE k.id = m.key OFFSET 0) k
    CROSS JOIN LATERAL (SELECT FROM leasequeue_limit l WHERE l.id = k.limit_id AND l.rate IS NOT NULL OFFSET 0) l
    UNION ALL SELECT FROM (SELECT m.workflow FROM leasequeue_member m WHERE m.seq = {seq} OFFSET 0) m CROSS JOIN LATERAL (
        SELECT FROM leasequeue_workflow w WHERE w.id = m.workflow AND w.state = 3 AND w.ended_at IS NULL OFFSET 0) w) AS pays OFFSET 0) p
