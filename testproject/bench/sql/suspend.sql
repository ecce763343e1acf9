-- Purpose: make the delayed jobs of a queue what jobs are that sleep, and, if an event is named, that wait for one of its own each.
-- Parameters: queue (id), project, event (null: they sleep).
INSERT INTO leasequeue_jobstep (seq, name, number, done_at, delivery, until, project, event)
SELECT d.seq, COALESCE('event ' || %(event)s::text || d.seq, 'nap'), 1, now(), 1, now() + interval '1 day',
    CASE WHEN %(event)s::text IS NOT NULL THEN %(project)s::text END, %(event)s::text || d.seq
FROM leasequeue_delayed d WHERE d.queue_id = %(queue)s::bigint
