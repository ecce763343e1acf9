-- Purpose: what leasequeue_enqueue does: check a call, and write the rows that the same call writes in Python. It holds
--   the queue as bulk writers do (queue_hold.sql): a session that deletes it waits, or is waited for. The transaction
--   id is taken before the number is drawn: readers rely on it.
-- Parameters: in_home (a table of the install: the others are in its schema); the others as leasequeue_enqueue has
--   them, null only where that is their default.
-- Settings: its own, as those of make_due; set_config replaces the search path, which returns at the end.
-- Index: leasequeue_queue_name, leasequeue_rank_place, leasequeue_uniquekey_pkey, and those of unique_look.
-- Returns: the id of the new job; with a key that is taken that of the job that holds it.
CREATE FUNCTION leasequeue_add_task(in_home regclass, in_task text, in_payload jsonb, in_queue text, in_priority int,
    in_run_after timestamptz, in_key text, in_unique_for interval, in_unique_until text, in_expires interval,
    in_tags jsonb, in_max_attempts int, in_backend text, in_project text) RETURNS text LANGUAGE plpgsql
    SET search_path = pg_catalog SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    longest CONSTANT bigint := 3162240000000;
    unique_ms CONSTANT numeric := round(extract(epoch FROM in_unique_for) * 1000);
    ttl CONSTANT numeric := round(extract(epoch FROM in_expires) * 1000);
    moment timestamptz;
    number bigint;
    numbered bigint;
    new_id text;
    new_rank int;
    new_flags int;
    new_expires timestamptz;
    result_ttl bigint;
    queue record;
    holder record;
    content record;
    refusal text;
BEGIN
    refusal := CASE
        WHEN (octet_length(in_task) <= 1024 AND in_task ~ '^[^.\s]+(\.[^.\s]+)+$') IS NOT TRUE THEN
            format('task must be the path of a task, such as ''shop.tasks.send_receipt''; it is %L.', left(in_task, 80))
        WHEN CASE jsonb_typeof(in_payload) WHEN 'object' THEN in_payload - '{args,kwargs}'::text[] <> '{}'
                OR jsonb_typeof(in_payload -> 'args') <> 'array' OR jsonb_typeof(in_payload -> 'kwargs') <> 'object'
            ELSE true END THEN
            format('payload must be {"args": [...], "kwargs": {...}}, each optional; it is %s.',
                left(in_payload::text, 200))
        -- Python reads no deeper and no longer ones; a short text has none.
        WHEN length(in_payload::text) > 200 AND (jsonb_path_exists(in_payload, 'strict $.**{100 to last}')
            OR EXISTS (SELECT FROM jsonb_path_query(in_payload, 'strict $.** ? (@.type() == "number")') AS n (value)
                WHERE length(n.value::text) > 400)) THEN
            'payload must have at most 99 levels and numbers of at most 400 digits.'
        WHEN in_priority NOT BETWEEN -100 AND 100 THEN
            format('priority must be an integer from -100 to 100; it is %s.', in_priority)
        WHEN in_run_after < '0001-01-01 00:00+00' OR in_run_after >= {HELD} THEN
            format('run_after must be a time before the year 9000; it is %s.', in_run_after)
        WHEN octet_length(in_key) NOT BETWEEN 1 AND 512 THEN
            format('key must be 1 to 512 bytes of text; it is %L.', left(in_key, 80))
        WHEN in_key IS NULL AND (in_unique_for IS NOT NULL OR in_unique_until IS NOT NULL) THEN
            'unique_for and unique_until are about a key: give key as well.'
        WHEN in_unique_for IS NOT NULL AND in_unique_until IS NOT NULL THEN
            'a key holds for unique_for or until unique_until: give one of them.'
        WHEN in_unique_until NOT IN ('start', 'end') THEN
            format('unique_until must be ''start'' or ''end''; it is %L.', left(in_unique_until, 80))
        WHEN unique_ms NOT BETWEEN 1 AND longest THEN
            format('unique_for must be a millisecond to a hundred years; it is %s.', in_unique_for)
        WHEN ttl NOT BETWEEN 1 AND longest THEN
            format('expires must be a millisecond to a hundred years; it is %s.', in_expires)
        WHEN CASE jsonb_typeof(in_tags) WHEN 'object' THEN (SELECT count(*) FROM jsonb_object_keys(in_tags)) > 16
            ELSE in_tags IS NOT NULL END THEN
            format('tags must be an object of at most 16 names, such as {"customer": 7}; it is %s.',
                left(in_tags::text, 200))
        WHEN in_max_attempts < 1 THEN format('max_attempts must be an integer from 1; it is %s.', in_max_attempts)
        WHEN octet_length(in_backend) NOT BETWEEN 1 AND 256 THEN
            format('backend must be an alias in TASKS; it is %L.', left(in_backend, 80))
        ELSE (SELECT format('tags: a name is a letter and at most 63 letters, digits, ''-'' and single ''_'' after it,'
                ' a value a text of 1 to 256 bytes, an integer of 64 bits or a bool; there is %s: %s.',
                to_json(left(t.key, 80)), left(t.value::text, 80))
            FROM jsonb_each(in_tags) t
            WHERE t.key !~ '^(?!.*__)[A-Za-z][A-Za-z0-9_-]{0,63}$' OR CASE jsonb_typeof(t.value)
                WHEN 'string' THEN octet_length(t.value #>> '{}') NOT BETWEEN 1 AND 256
                WHEN 'number' THEN t.value::text !~ '^-?[0-9]{1,19}$'
                    OR t.value::numeric NOT BETWEEN -9223372036854775808 AND 9223372036854775807
                ELSE t.value NOT IN ('true', 'false') END LIMIT 1)
        END;
    IF refusal IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = refusal,
            HINT = 'leasequeue_enqueue takes the options of task.using(): docs/how-to/enqueue-from-sql.md.';
    END IF;
    SELECT jsonb_object_agg(p.key, p.value) FILTER (WHERE p.value NOT IN ('[]', '{}'))::text::json AS data,
        NULLIF(jsonb_strip_nulls(jsonb_build_object('backend', NULLIF(in_backend, 'default'), '$tags', in_tags,
            'run_after', regexp_replace(to_char(in_run_after AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
                '\.0{6}$', '') || '+00:00')), '{}')::text::json AS meta,
        NULL::bytea AS body INTO content FROM jsonb_each(in_payload) p;
    IF {bytes(content)} > 1048576 THEN
        RAISE program_limit_exceeded USING MESSAGE = format('payload must have at most 1048576 bytes; it has %s.',
            {bytes(content)}), HINT = 'Keep large data in a table and enqueue its id.';
    END IF;

    PERFORM set_config('search_path', c.relnamespace::regnamespace || ', pg_temp', true) FROM pg_class c
    WHERE c.oid = in_home;
    SELECT q.id INTO number FROM leasequeue_queue q WHERE q.project = in_project AND q.name = in_queue;
    PERFORM pg_advisory_xact_lock_shared({lock.writers}, number::int);
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM FROM leasequeue_queue q WHERE q.id = number FOR KEY SHARE;
    END IF;
    -- A statement of its own: it sees what was committed before the queue was held.
    SELECT q.* INTO queue FROM leasequeue_queue q WHERE q.id = number;
    IF NOT FOUND THEN
        RAISE undefined_object USING MESSAGE = format('There is no queue %L%s.', in_queue,
            ' in project ' || quote_literal(NULLIF(in_project, ''))), HINT = 'A call from SQL makes none. Declare it in'
            ' LEASEQUEUE[''QUEUES''] or TASKS and run migrate, or enqueue its first task from Python.';
    ELSIF queue.type <> 'queue' OR GREATEST(queue.cap_records, queue.cap_bytes) > 0 THEN
        RAISE wrong_object_type USING MESSAGE = format('queue_name must be a queue without a cap; %L is %s.', in_queue,
            CASE queue.type WHEN 'queue' THEN 'one with a cap' ELSE 'a log' END),
            HINT = 'Records of a log are never run. Enqueue to a queue with a cap from Python.';
    END IF;

    IF in_key IS NOT NULL THEN
        FOR look IN 1..2 LOOP
            SELECT taker.* INTO holder FROM ({unique_holder(queue.id, in_key, clock_timestamp())}) taker;
            IF holder.verdict <> {key.FREE} THEN
                RETURN holder.id;
            END IF;
            EXIT WHEN look = 2;
            -- The row is locked until the end of the transaction: look again.
            INSERT INTO leasequeue_uniquekey AS u (queue_id, key, seq, until_start)
            VALUES (queue.id, in_key, 0, false) ON CONFLICT (queue_id, key) DO UPDATE SET seq = u.seq;
        END LOOP;
        IF holder.id = in_key THEN -- a job of a Queue, not of a task
            UPDATE leasequeue_job j SET key = NULL WHERE j.seq = holder.seq AND j.key = in_key;
        END IF;
        result_ttl := CASE WHEN unique_ms > queue.result_ttl_ms THEN unique_ms END;
    END IF;

    moment := clock_timestamp();
    numbered := {txid()};
    number := nextval('leasequeue_job_seq_seq');
    new_id := leasequeue_job_id(number, right(gen_random_uuid()::text, 17));
    new_rank := CASE queue.priority_order WHEN 'none' THEN 0 WHEN 'asc' THEN 1 ELSE -1 END
        * LEAST(GREATEST(in_priority, queue.priority_min), queue.priority_max);
    new_expires := moment + NULLIF(COALESCE(ttl, queue.ttl_ms), 0)::float8 * interval '1 ms';
    new_flags := {is_large(content)} + {RESULT_TTL} * (result_ttl IS NOT NULL)::int;
    INSERT INTO leasequeue_job (seq, queue_id, created_at, expires_at, rank, generated, key, name, data, meta,
        result_ttl_ms, max_deliveries)
    VALUES (number, queue.id, moment, new_expires, new_rank, true, new_id, in_task, content.data, content.meta,
        result_ttl, in_max_attempts);
    INSERT INTO leasequeue_queuerank (queue_id, rank) SELECT queue.id, new_rank WHERE NOT EXISTS (
        SELECT FROM leasequeue_queuerank k WHERE k.queue_id = queue.id AND k.rank = new_rank);
    IF queue.log_enqueued THEN
        INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
        VALUES (numbered, moment, queue.id, number, number, {event.ENQUEUED}, in_task, ARRAY[number],
            CASE WHEN in_tags IS NOT NULL THEN jsonb_build_object('tags', in_tags) END);
    END IF;
    IF in_key IS NOT NULL THEN
        UPDATE leasequeue_uniquekey u SET seq = number, free_at = moment + unique_ms::float8 * interval '1 ms',
            until_start = (in_unique_until = 'start') IS TRUE
        WHERE u.queue_id = queue.id AND u.key = in_key;
    END IF;
    IF in_run_after > moment THEN
        INSERT INTO leasequeue_delayed (seq, queue_id, available_at, deliveries, rank, flags, max_deliveries,
            expires_at)
        VALUES (number, queue.id, in_run_after, 0, new_rank, new_flags, in_max_attempts, new_expires);
    ELSE
        INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries,
            expires_at)
        VALUES (queue.id, new_rank, {FRESH}, number, number, 0, new_flags, moment, in_max_attempts, new_expires);
        PERFORM {wake(queue.id)};
    END IF;
    RETURN new_id;
END $$;
