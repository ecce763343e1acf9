-- Purpose: remove floors below a higher one, and duplicate ranks. Readers go by the highest,
--   so they are not read any more.
-- Parameters: size (rows of each).
-- Index: the two tables as a whole, small while this runs; leasequeue_floor_place, leasequeue_rank_place.
-- Pages: whole tables of floors and ranks, small while this runs.
WITH old_floors AS MATERIALIZED (
    SELECT f.ctid AS place FROM leasequeue_queuefloor f WHERE (f.value, f.id) < (
        SELECT h.value, h.id FROM leasequeue_queuefloor h
        WHERE h.queue_id = f.queue_id AND h.kind = f.kind AND h.rank = f.rank ORDER BY h.value DESC, h.id DESC LIMIT 1)
    LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), old_ranks AS MATERIALIZED (
    SELECT k.ctid AS place FROM leasequeue_queuerank k WHERE k.id > (
        SELECT min(h.id) FROM leasequeue_queuerank h WHERE h.queue_id = k.queue_id AND h.rank = k.rank)
    LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), floors AS (
    DELETE FROM leasequeue_queuefloor WHERE ctid = ANY (ARRAY(SELECT place FROM old_floors)) RETURNING 1
), ranks AS (
    DELETE FROM leasequeue_queuerank WHERE ctid = ANY (ARRAY(SELECT place FROM old_ranks)) RETURNING 1
)
SELECT (SELECT count(*) FROM floors), (SELECT count(*) FROM ranks)
