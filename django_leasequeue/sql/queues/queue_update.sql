-- Purpose: replace all options of a queue (the type cannot change: a trigger refuses it).
-- Parameters: project, name, config (json object with every option), now. The options stand in conf/queue_options.py.
-- Index: leasequeue_queue_name.
-- Pages: 50
UPDATE leasequeue_queue q SET updated_at = {now()}, (/*options*/) = (
    SELECT * FROM jsonb_to_record(%(config)s::jsonb) AS o(/*typed options*/))
WHERE q.project = %(project)s AND q.name = %(name)s
RETURNING q.id
