-- is_cancelled(seq): whether the workflow of a job is being cancelled.
EXISTS (SELECT FROM (SELECT m.workflow FROM leasequeue_member m WHERE m.seq = {seq} OFFSET 0) m CROSS JOIN LATERAL (
        SELECT FROM leasequeue_workflow w WHERE w.id = m.workflow AND w.state = {workflow.CANCELLED}
            AND w.ended_at IS NULL OFFSET 0) w)
