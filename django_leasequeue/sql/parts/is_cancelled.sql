-- is_cancelled(seq): whether the workflow of a job is being cancelled, and the job does not undo its steps by now.
EXISTS (SELECT FROM (SELECT m.workflow FROM leasequeue_member m WHERE m.seq = {seq} OFFSET 0) m CROSS JOIN LATERAL (
        SELECT FROM leasequeue_workflow w WHERE w.id = m.workflow AND w.state = {workflow.CANCELLED}
            AND w.ended_at IS NULL OFFSET 0) w
    WHERE NOT EXISTS (SELECT FROM leasequeue_jobstep s
        WHERE s.seq = {seq} AND s.name = '$undo' AND s.value ->> 'why' IS NOT NULL OFFSET 0))
