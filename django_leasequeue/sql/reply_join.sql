-- Purpose: a caller who did not make a job wants to be told of its end as well: its channel joins the job's.
-- Parameters: seq, channel, room (characters of all channels together).
-- Index: leasequeue_job_pkey. Waits for a settle call on the job and then sees that it is gone.
-- Returns: seq and whether the end will be told; no row when the job does not live any more.
WITH j AS MATERIALIZED (
    SELECT j.seq, j.reply_to, %(channel)s::text = ANY (string_to_array(COALESCE(j.reply_to, ''), ' ')) AS listed
    FROM leasequeue_job j WHERE j.seq = %(seq)s::bigint AND j.state IN (0, 1, 2) FOR UPDATE
), u AS (
    UPDATE leasequeue_job k SET reply_to = concat_ws(' ', j.reply_to, %(channel)s::text)
    FROM j WHERE k.seq = j.seq AND NOT j.listed AND length(COALESCE(j.reply_to, '')) < %(room)s::int
    RETURNING k.seq
)
SELECT j.seq, j.listed OR EXISTS (SELECT FROM u) FROM j
