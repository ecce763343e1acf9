-- Purpose: dead letters as lists and exports show them, in the order given.
-- Parameters: seqs, payload (with data, meta and errors).
-- Index: leasequeue_deadletter_pkey, leasequeue_job_pkey, leasequeue_queue_pkey; of dead letters in a queue
--   leasequeue_ready_pkey, leasequeue_delayed_pkey; with payload leasequeue_attempt_job.
-- Pages: 20 + 18 a row
SELECT d.seq, d.queue_id, q.project, q.name AS queue, CASE WHEN d.in_place THEN {DEAD} WHEN q.type = 'log' THEN {RECORD}
        WHEN EXISTS (SELECT FROM leasequeue_ready_at(d.queue_id, j.rank,
            COALESCE(j.position, j.seq)) OFFSET 0) THEN {READY}
        WHEN EXISTS (SELECT FROM leasequeue_delayed w WHERE w.seq = d.seq OFFSET 0) THEN {DELAYED}
            ELSE {LEASED} END AS state_number,
    j.name, j.key, j.tag, d.deliveries, d.error_type,
    CASE WHEN %(payload)s::bool THEN d.error ELSE left(d.error, 300) END AS error, d.fingerprint, d.dead_at,
    j.created_at, h.name AS home, j.source_seq, CASE WHEN %(payload)s::bool THEN j.data::text END AS data_json,
    CASE WHEN %(payload)s::bool THEN j.meta::text END AS meta_json, CASE
        WHEN %(payload)s::bool THEN leasequeue_errors(d.seq)::text END AS errors_json
FROM unnest(%(seqs)s::bigint[]) WITH ORDINALITY AS u(seq, ord)
CROSS JOIN LATERAL (SELECT * FROM leasequeue_deadletter d WHERE d.seq = u.seq OFFSET 0) d
CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq OFFSET 0) j
CROSS JOIN LATERAL (SELECT q.project, q.name, q.type FROM leasequeue_queue q WHERE q.id = d.queue_id OFFSET 0) q
LEFT JOIN LATERAL (SELECT h.name FROM leasequeue_queue h WHERE h.id = j.source_queue OFFSET 0) h ON true
ORDER BY u.ord
