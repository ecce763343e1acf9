-- pays(flags, seq): whether a released job becomes delayed first: each attempt is a start, which the
-- rate of its limit counts; one of a workflow that is being cancelled is taken out there.
CROSS JOIN LATERAL (SELECT {flags} & {FLOW} <> 0 AND (EXISTS (
    SELECT FROM (SELECT m.key FROM leasequeue_member m WHERE m.seq = {seq} OFFSET 0) m
    CROSS JOIN LATERAL (SELECT k.limit_id FROM leasequeue_limitkey k WHERE k.id = m.key OFFSET 0) k
    CROSS JOIN LATERAL (SELECT FROM leasequeue_limit l WHERE l.id = k.limit_id AND l.rate IS NOT NULL OFFSET 0) l)
    OR {is_cancelled({seq})}) AS pays OFFSET 0) p
