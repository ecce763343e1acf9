CREATE FUNCTION leasequeue_ready_at(queue bigint, place_rank smallint, place bigint) RETURNS SETOF leasequeue_ready
LANGUAGE sql STABLE AS $$
    SELECT * FROM leasequeue_ready r
    WHERE r.queue_id = queue AND r.rank = place_rank AND r.lane = 2 AND r.position = place
    UNION ALL
    SELECT * FROM leasequeue_ready r
    WHERE r.queue_id = queue AND r.rank = place_rank AND r.lane = 1 AND r.position = place
$$;
