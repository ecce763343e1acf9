-- heads(): the highest numbers of a topic's records and ready jobs, in its CTEs topic and lanes.
{floor(topic.id, {floor.HEAD}, 0)},
(SELECT o.seq FROM leasequeue_record o WHERE o.queue_id = topic.id ORDER BY o.seq DESC LIMIT 1),
(SELECT max(r.seq) FROM lanes CROSS JOIN LATERAL (
    SELECT COALESCE(max(r.seq) FILTER (WHERE r.position = r.seq), CASE
        WHEN count(*) = 100 THEN max(r.position) END) AS seq
    FROM (SELECT r.seq, r.position FROM leasequeue_ready r WHERE r.queue_id = lanes.id AND r.rank = lanes.rank
        AND r.lane = lanes.lane
        ORDER BY r.position DESC LIMIT 100) r) r),
(SELECT r.seq FROM leasequeue_ready r WHERE r.queue_id = topic.id AND NOT r.position = r.seq ORDER BY r.seq DESC
    LIMIT 1)
