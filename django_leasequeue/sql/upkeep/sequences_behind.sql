-- Purpose: the sequences that stand behind the numbers of their columns: logical replication copies rows, and no
--   sequences.
-- Index: the primary keys; leasequeue_event_occurred (BRIN) from an hour before the reaper noted its timeline last; the
--   log as a whole where nothing was written since.
-- Pages: whole tables: the log's newest hour, tables of a handful of rows.
-- Returns: the sequence, the highest number in use, the last one drawn (0: none), of those that the role may read. Jobs
--   that are gone have left theirs in the log, with topics and with the timeline. (Not floors: one may stand too high.)
WITH noted AS MATERIALIZED (
    SELECT COALESCE(max(noted_at) - interval '1 hour', '-infinity') AS since FROM leasequeue_timeline
), newest AS MATERIALIZED (
    SELECT max(id) AS id, max(high) AS seq FROM leasequeue_leaseevent WHERE occurred_at >= (SELECT since FROM noted)
), numbers AS MATERIALIZED (
    SELECT 'leasequeue_leaseevent' AS name, 'id' AS of,
        COALESCE((SELECT id FROM newest), (SELECT max(id) FROM leasequeue_leaseevent)) AS highest
    UNION ALL
    SELECT 'leasequeue_job', 'seq', GREATEST((SELECT max(seq) FROM leasequeue_job), (SELECT seq FROM newest),
        (SELECT max(head) FROM leasequeue_timeline), (SELECT max(head_seq) FROM leasequeue_topicstate))
    UNION ALL SELECT 'leasequeue_queue', 'id', max(id) FROM leasequeue_queue
    UNION ALL SELECT 'leasequeue_route', 'id', max(id) FROM leasequeue_route
    UNION ALL SELECT 'leasequeue_queuefloor', 'id', max(id) FROM leasequeue_queuefloor
    UNION ALL SELECT 'leasequeue_queuerank', 'id', max(id) FROM leasequeue_queuerank
    UNION ALL SELECT 'leasequeue_queuestat', 'id', max(id) FROM leasequeue_queuestat
    UNION ALL SELECT 'leasequeue_idempotencykey', 'id', max(id) FROM leasequeue_idempotencykey
    UNION ALL SELECT 'leasequeue_workflow', 'id', max(id) FROM leasequeue_workflow
    UNION ALL SELECT 'leasequeue_limit', 'id', max(id) FROM leasequeue_limit
    UNION ALL SELECT 'leasequeue_limitkey', 'id', max(id) FROM leasequeue_limitkey
    UNION ALL SELECT 'leasequeue_flowturn', 'id', max(id) FROM leasequeue_flowturn
    UNION ALL SELECT 'leasequeue_attempt', 'id', max(id) FROM leasequeue_attempt
    UNION ALL SELECT 'leasequeue_lakeconsumer', 'id', max(id) FROM leasequeue_lakeconsumer
    UNION ALL SELECT 'leasequeue_lakeslice', 'id', max(id) FROM leasequeue_lakeslice
    UNION ALL SELECT 'leasequeue_lakewrite', 'id', max(id) FROM leasequeue_lakewrite
    UNION ALL SELECT 'leasequeue_lakestage', 'id', max(id) FROM leasequeue_lakestage
    UNION ALL SELECT 'leasequeue_lakefigure', 'id', max(id) FROM leasequeue_lakefigure
    UNION ALL SELECT 'leasequeue_worker', 'id', max(id) FROM leasequeue_worker
    UNION ALL SELECT 'leasequeue_recurringtask', 'id', max(id) FROM leasequeue_recurringtask
    UNION ALL SELECT 'leasequeue_pausedtask', 'id', max(id) FROM leasequeue_pausedtask
    UNION ALL SELECT 'leasequeue_apikey', 'id', max(id) FROM leasequeue_apikey
    UNION ALL SELECT 'leasequeue_bulkoperation', 'id', max(id) FROM leasequeue_bulkoperation
    UNION ALL SELECT 'leasequeue_operatoraction', 'id', max(id) FROM leasequeue_operatoraction
    UNION ALL SELECT 'leasequeue_savedfilter', 'id', max(id) FROM leasequeue_savedfilter
    UNION ALL SELECT 'leasequeue_largeobject', 'id', max(id) FROM leasequeue_largeobject
    UNION ALL SELECT 'leasequeue_claimwaiter', 'id', max(id) FROM leasequeue_claimwaiter
), sequences AS MATERIALIZED (
    SELECT pg_get_serial_sequence(format('%%I', numbers.name), numbers.of) AS sequence, numbers.highest FROM numbers
)
SELECT sequences.sequence, sequences.highest, COALESCE(pg_sequence_last_value(sequences.sequence::regclass), 0)
FROM sequences WHERE sequences.highest > COALESCE(pg_sequence_last_value(sequences.sequence::regclass), 0)
    AND has_sequence_privilege(sequences.sequence, 'USAGE, SELECT') ORDER BY 1
