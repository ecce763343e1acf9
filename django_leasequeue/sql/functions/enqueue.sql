-- Purpose: enqueue a task from SQL, with the options of `task.using()` by their names: for triggers, psql and other
--   languages. Names, order and defaults are public. The body is bound when it is made: it finds the function and the
--   table of its own install, whatever the caller's search path; add_task is dropped after it.
-- Returns: the id of the task's result.
CREATE FUNCTION leasequeue_enqueue(task text, payload jsonb DEFAULT '{}', queue_name text DEFAULT 'default',
    priority int DEFAULT 0, run_after timestamptz DEFAULT NULL, key text DEFAULT NULL,
    unique_for interval DEFAULT NULL, unique_until text DEFAULT NULL, expires interval DEFAULT NULL,
    tags jsonb DEFAULT NULL, max_attempts int DEFAULT NULL, backend text DEFAULT 'default', project text DEFAULT '')
    RETURNS text LANGUAGE sql
    RETURN leasequeue_add_task('leasequeue_queue'::regclass, task, COALESCE(payload, '{}'),
        COALESCE(queue_name, 'default'), COALESCE(priority, 0), run_after, key, unique_for, unique_until, expires,
        NULLIF(tags, '{}'), max_attempts, COALESCE(backend, 'default'), COALESCE(project, ''));
