-- Purpose: add a caller's channel to those that the end of a job notifies.
-- Parameters: seq, channel, room (characters of all channels together).
-- Index: leasequeue_job_pkey, leasequeue_jobresult_pkey, leasequeue_deadletter_pkey, leasequeue_record_pkey,
--   leasequeue_ready_pkey, leasequeue_delayed_pkey; else its queue's claims by leasequeue_claim_deadline from the floor
--   on. Locks the place of the job, as the sessions that end or move it do, and marks it there.
-- Pages: 90
-- Returns: seq and whether the end will be told, null if the job went elsewhere meanwhile (look again); no row when it
--   does not live any more.
WITH job AS MATERIALIZED (
    SELECT j.seq, j.queue_id, j.rank, COALESCE(j.position, j.seq) AS position, l.listed,
        length(COALESCE(j.reply_to, '')) < %(room)s::int AS fits
    FROM leasequeue_job j CROSS JOIN LATERAL (
        SELECT %(channel)s::text = ANY (string_to_array(COALESCE(j.reply_to, ''), ' ')) AS listed) l
    WHERE j.seq = %(seq)s::bigint
        AND NOT EXISTS (SELECT FROM leasequeue_jobresult r WHERE r.seq = j.seq OFFSET 0)
        AND NOT EXISTS (SELECT FROM leasequeue_deadletter d WHERE d.seq = j.seq AND d.in_place OFFSET 0)
        AND NOT EXISTS (SELECT FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = j.seq OFFSET 0)
), ready AS (
    UPDATE leasequeue_ready r SET flags = r.flags | {REPLY}
    WHERE r.queue_id = (SELECT queue_id FROM job WHERE fits AND NOT listed) AND r.rank = (SELECT rank FROM job)
        AND r.lane = (SELECT s.lane FROM job, leasequeue_ready_at(job.queue_id, job.rank, job.position) s)
        AND r.position = (SELECT position FROM job)
    RETURNING r.seq
), delayed AS (
    UPDATE leasequeue_delayed w SET flags = w.flags | {REPLY} WHERE w.seq = (SELECT seq FROM job
        WHERE fits AND NOT listed) RETURNING w.seq
), leased AS (
    UPDATE leasequeue_claim c SET flags = c.flags | {REPLY}
    WHERE NOT EXISTS (SELECT FROM ready) AND NOT EXISTS (SELECT FROM delayed)
        AND c.queue_id = (SELECT queue_id FROM job WHERE fits AND NOT listed) AND (SELECT seq FROM job) = ANY (c.seqs)
        AND c.deadline >= {since((SELECT queue_id FROM job), {floor.CLAIM})}
    RETURNING (SELECT seq FROM job) AS seq
), joined AS (
    UPDATE leasequeue_job SET reply_to = concat_ws(' ', reply_to, %(channel)s::text) WHERE seq = ANY (ARRAY(
        SELECT seq FROM ready UNION ALL SELECT seq FROM delayed UNION ALL SELECT seq FROM leased))
    RETURNING seq
)
SELECT job.seq, CASE WHEN job.listed OR EXISTS (SELECT FROM joined) THEN true WHEN NOT job.fits THEN false END FROM job
