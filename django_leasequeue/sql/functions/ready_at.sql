-- Purpose: the row of a ready job at its place, which is in one of the two lanes. (One look for each lane: a planner
--   who thinks the table empty would make of "lane IN" a filter, and read the rest of the index behind.)
-- Index: leasequeue_ready_pkey.
CREATE FUNCTION leasequeue_ready_at(queue bigint, place_rank smallint, place bigint) RETURNS SETOF leasequeue_ready
LANGUAGE sql STABLE AS $$
    SELECT * FROM leasequeue_ready r
    WHERE r.queue_id = queue AND r.rank = place_rank AND r.lane = {FRESH} AND r.position = place
    UNION ALL
    SELECT * FROM leasequeue_ready r
    WHERE r.queue_id = queue AND r.rank = place_rank AND r.lane = {AGAIN} AND r.position = place
$$;
