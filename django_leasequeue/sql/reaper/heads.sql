-- Purpose: note the highest number of queues that keep results: the newest of their jobs may have ended, and stands
--   among no others then. An ack does not note it: it would be dearer.
-- Parameters: look (results of all queues that are read, of the highest numbers), now.
-- Index: leasequeue_jobresult_pkey, leasequeue_queue_pkey, leasequeue_floor_place; inserts.
-- Pages: 30 + 0.1 a row
INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at)
SELECT h.queue_id, {floor.HEAD}, 0, h.seq, {now()} FROM (
    SELECT z.queue_id, max(z.seq) AS seq
    FROM (SELECT z.seq, z.queue_id FROM leasequeue_jobresult z ORDER BY z.seq DESC LIMIT %(look)s::int) z
    GROUP BY z.queue_id) h
CROSS JOIN LATERAL (SELECT FROM leasequeue_queue q WHERE q.id = h.queue_id OFFSET 0) q
WHERE h.seq > {floor(h.queue_id, {floor.HEAD}, 0)}
RETURNING queue_id
