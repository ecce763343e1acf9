-- past_ttl(topic): whether the topic (id, now) has records past their TTL.
COALESCE((SELECT 1 FROM leasequeue_record o WHERE o.queue_id = {topic}.id AND o.expires_at IS NOT NULL
        AND o.expires_at <= {topic}.now ORDER BY o.expires_at LIMIT 1),
    (SELECT 1 FROM leasequeue_ready r WHERE r.queue_id = {topic}.id AND r.expires_at IS NOT NULL
        AND r.expires_at <= {topic}.now ORDER BY r.expires_at LIMIT 1),
    (SELECT 1 FROM leasequeue_delayed d WHERE d.queue_id = {topic}.id AND d.expires_at IS NOT NULL
        AND d.expires_at <= {topic}.now ORDER BY d.expires_at LIMIT 1),
    (SELECT 1 FROM leasequeue_deadletter x WHERE x.queue_id = {topic}.id AND x.expires_at IS NOT NULL
        AND x.expires_at <= {topic}.now AND x.in_place ORDER BY x.expires_at LIMIT 1)) IS NOT NULL
