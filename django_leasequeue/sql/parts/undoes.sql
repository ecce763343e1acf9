-- undoes(seq): whether a job has steps to undo, or is undoing them.
EXISTS (SELECT FROM leasequeue_jobstep s
    WHERE s.seq = {seq} AND s.name = '$undo' AND s.value ->> 'done' IS NULL OFFSET 0)
