-- Purpose: the holders of unique keys, and whether they still hold them. With ``free`` (under the locks of unique_take)
--   a job that may not any more gives its key back where it stands on the job as well. A dead letter that was retried
--   has its key until it starts again, but is not one that never started.
-- Parameters: project, queue, keys, free, now.
-- Index: leasequeue_queue_name, leasequeue_uniquekey_pkey, leasequeue_job_pkey, leasequeue_jobresult_pkey,
--   leasequeue_deadletter_pkey, leasequeue_ready_pkey, leasequeue_delayed_pkey, leasequeue_record_pkey.
-- Pages: 20 + 30 a row
-- Returns: a KeyVerdict: waits (it holds the key and has not started), held, or free. Keys that no job has taken have
--   no row.
WITH queue AS MATERIALIZED (
    SELECT id, {now()} AS now FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), holders AS MATERIALIZED (
    SELECT held.* FROM queue CROSS JOIN (SELECT DISTINCT key FROM unnest(%(keys)s::text[]) AS given(key)) asked
    CROSS JOIN LATERAL ({unique_holder(queue.id, asked.key, queue.now)}) held
), freed AS (
    UPDATE leasequeue_job j SET key = NULL FROM holders
    WHERE %(free)s::bool AND j.seq = ANY (ARRAY(SELECT seq FROM holders WHERE verdict = {key.FREE}))
        AND holders.seq = j.seq
        AND j.key = holders.key
)
SELECT key, seq, state, verdict FROM holders
