-- Purpose: the numbers of jobs in one queue, by their keys or known already, and which of them have steps to undo.
-- Parameters: project, queue, keys, seqs.
-- Index: leasequeue_queue_name, leasequeue_job_key (leasequeue_keyed), leasequeue_job_pkey, leasequeue_jobstep_pkey.
-- Pages: 20 + 6 a row
-- Returns: queue id (always one row at least, if the queue is there), seq, whether it has steps to undo, whether it
--   undoes them already.
SELECT q.id, j.seq, COALESCE(note.value ->> 'done' IS NULL AND note.value IS NOT NULL, false) AS undoes,
    COALESCE(note.value ->> 'why' IS NOT NULL, false) AS undoing
FROM leasequeue_queue q LEFT JOIN leasequeue_job j
    ON j.seq = ANY (ARRAY(SELECT k.seq FROM leasequeue_keyed(%(keys)s::text[]) k
        UNION SELECT unnest(%(seqs)s::bigint[]))) AND j.queue_id = q.id
LEFT JOIN LATERAL (SELECT s.value FROM leasequeue_jobstep s WHERE s.seq = j.seq AND s.name = '$undo' OFFSET 0) note
    ON true
WHERE q.project = %(project)s AND q.name = %(queue)s
