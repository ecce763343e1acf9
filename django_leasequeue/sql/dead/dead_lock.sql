-- Purpose: lock dead letters before a change, if they are unchanged since they were read, without waiting.
-- Parameters: seqs, until (dead letters that died later are other deaths; null: any).
-- Index: leasequeue_deadletter_pkey, leasequeue_job_pkey, leasequeue_record_pkey, leasequeue_ready_pkey,
--   leasequeue_jobresult_pkey, leasequeue_queue_pkey.
-- Pages: 20 + 18 a row
-- Returns: for each seq, in order of the numbers: seq, project, queue, state, name of the queue it came from (null:
--   none, or it is gone), and why it cannot be changed (null: it is locked): gone, retried, died_again, busy.
WITH letters AS MATERIALIZED (
    SELECT u.seq, d.seq IS NOT NULL AS dead, d.dead_at, d.queue_id, j.source_queue, p.state,
        CASE WHEN d.seq IS NULL THEN j.seq END AS live
    FROM unnest(%(seqs)s::bigint[]) AS u(seq)
    LEFT JOIN LATERAL (SELECT * FROM leasequeue_deadletter d WHERE d.seq = u.seq OFFSET 0) d ON true
    LEFT JOIN LATERAL (SELECT j.seq, j.rank, j.source_queue, COALESCE(j.position, j.seq) AS position
        FROM leasequeue_job j
        WHERE j.seq = u.seq OFFSET 0) j ON true
    LEFT JOIN {dead_place(d.queue_id, u.seq, l.dead_at + interval '0' = d.dead_at, j.position)}
        ON d.dead_at <= COALESCE(%(until)s::timestamptz, 'infinity')
)
SELECT letters.seq, q.project, q.name, letters.state, h.name, CASE
    WHEN letters.state IS NOT NULL THEN CASE WHEN q.name IS NULL THEN 'gone' END
    WHEN letters.dead THEN CASE WHEN letters.dead_at > %(until)s::timestamptz THEN 'died_again' ELSE 'busy' END
    WHEN letters.live IS NULL OR EXISTS (SELECT FROM leasequeue_jobresult r
        WHERE r.seq = letters.live OFFSET 0) THEN 'gone' ELSE 'retried' END
FROM letters
LEFT JOIN LATERAL (SELECT q.project, q.name FROM leasequeue_queue q WHERE q.id = letters.queue_id OFFSET 0) q ON true
LEFT JOIN LATERAL (SELECT h.name FROM leasequeue_queue h WHERE h.id = letters.source_queue
    AND h.type = 'queue' OFFSET 0) h ON true
ORDER BY letters.seq
