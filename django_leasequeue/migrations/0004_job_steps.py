"""What the steps of jobs have returned, and the events that jobs wait for: tables of their own, which nothing else reads."""

from django.db import migrations, models

import django_leasequeue.models.base

# The settings of these functions: they read by index, whatever a host's planner knew of tables that fill and empty when it
# made a plan. They cost less than a statement that sets them, and each one costs: what looks for one row has few.

# Whether a worker holds the lease of a job.
HOLDS = """
CREATE FUNCTION leasequeue_holds(in_seq bigint, in_token bigint, in_node text, in_now timestamptz) RETURNS boolean
STABLE LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    RETURN EXISTS (SELECT FROM leasequeue_claim c WHERE c.token = in_token AND (c.node = in_node) IS TRUE AND in_seq = ANY (c.seqs)
        AND (c.deadline >= COALESCE(in_now, clock_timestamp())
            OR (SELECT q.late_ack FROM leasequeue_queue q WHERE q.id = c.queue_id) = 'accept'));
END $$;
"""

# Who emits and who goes to wait may not pass each other: the one waits for this lock, the other looks whether it is free.
# The lock is taken in an expression, which costs less than a statement; the statements behind it see what was committed
# before. Nearly every event is new: a plain conflict clause costs less than one with an update, which runs when it is not.
EMIT = """
CREATE FUNCTION leasequeue_make_due(in_project text, in_name text, in_size int, in_now timestamptz) RETURNS bigint[]
LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    waiting bigint[] := ARRAY(
        SELECT s.seq FROM leasequeue_jobstep s WHERE s.project = in_project AND s.event = in_name LIMIT in_size);
BEGIN
    WITH due AS (
        UPDATE leasequeue_delayed d SET available_at = in_now
        WHERE d.seq = ANY (waiting)
            AND (d.available_at > in_now AND d.available_at < '9000-01-01 00:00+00') IS TRUE
        RETURNING d.queue_id
    )
    SELECT array_agg(DISTINCT due.queue_id) INTO waiting FROM due;
    RETURN waiting;
END $$;

CREATE FUNCTION leasequeue_emit(in_project text, in_name text, in_payload json, in_keep bigint, in_size int, in_now timestamptz)
    RETURNS bigint[] LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    alone CONSTANT bool := pg_advisory_xact_lock(1280657741, hashtext(in_project || chr(31) || in_name)) IS NOT NULL;
    moment CONSTANT timestamptz := COALESCE(in_now, clock_timestamp());
    queues bigint[];
BEGIN
    INSERT INTO leasequeue_emittedevent (project, name, payload, emitted_at, expires_at)
    VALUES (in_project, in_name, in_payload, moment, moment + in_keep * interval '1 ms') ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        INSERT INTO leasequeue_emittedevent AS e (project, name, payload, emitted_at, expires_at)
        VALUES (in_project, in_name, in_payload, moment, moment + in_keep * interval '1 ms')
        ON CONFLICT (project, name) DO UPDATE SET payload = excluded.payload, emitted_at = excluded.emitted_at,
            expires_at = excluded.expires_at WHERE e.expires_at <= moment;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    IF EXISTS (SELECT FROM leasequeue_jobstep s WHERE s.project = in_project AND s.event = in_name) THEN
        queues := leasequeue_make_due(in_project, in_name, in_size, moment);
    END IF;
    RETURN COALESCE(queues, '{}');
END $$;
"""

WAKE = """
CREATE FUNCTION leasequeue_wake(in_seqs bigint[], in_now timestamptz) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := COALESCE(in_now, clock_timestamp());
    busy bigint[];
BEGIN
    -- A range and an order, not an equality: without statistics a planner takes that for any index that has the number in it.
    busy := ARRAY(SELECT s.seq FROM unnest(in_seqs) AS u (seq) CROSS JOIN LATERAL (
            SELECT * FROM leasequeue_jobstep s WHERE s.seq >= u.seq AND s.seq <= u.seq AND s.event IS NOT NULL
            ORDER BY s.seq LIMIT 1) s
        WHERE NOT pg_try_advisory_xact_lock_shared(1280657741, hashtext(s.project || chr(31) || s.event)));
    -- A statement of its own: it sees what was committed before the lock was free.
    RETURN QUERY WITH w AS MATERIALIZED (
        SELECT s.seq, moment + CASE WHEN s.seq = ANY (busy) THEN interval '1 s' ELSE interval '0' END AS due
        FROM unnest(in_seqs) AS u (seq) CROSS JOIN LATERAL (
            SELECT * FROM leasequeue_jobstep s WHERE s.seq >= u.seq AND s.seq <= u.seq AND s.event IS NOT NULL
            ORDER BY s.seq LIMIT 1) s
        WHERE s.seq = ANY (busy) OR EXISTS (
            SELECT FROM leasequeue_emittedevent e WHERE e.project = s.project AND e.name = s.event AND (e.expires_at > moment) IS TRUE)
    ), due AS (
        UPDATE leasequeue_delayed d SET available_at = w.due FROM w
        WHERE d.seq = w.seq AND d.seq = ANY (ARRAY(SELECT w.seq FROM w))
            AND (d.available_at > w.due AND d.available_at < '9000-01-01 00:00+00') IS TRUE
        RETURNING d.queue_id
    )
    SELECT DISTINCT due.queue_id FROM due;
END $$;
"""

DROP = """
DROP FUNCTION leasequeue_holds(bigint, bigint, text, timestamptz);
DROP FUNCTION leasequeue_emit(text, text, json, bigint, int, timestamptz);
DROP FUNCTION leasequeue_make_due(text, text, int, timestamptz);
DROP FUNCTION leasequeue_wake(bigint[], timestamptz);
"""


# Backward: without its steps a job would start from its beginning, what it has done is done again.
REFUSE = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM leasequeue_jobstep s JOIN leasequeue_job j ON j.seq = s.seq
            WHERE NOT EXISTS (SELECT FROM leasequeue_jobresult r WHERE r.seq = s.seq)) THEN
        RAISE EXCEPTION 'Jobs have done steps: the release before this migration would do them again.'
            USING HINT = 'Let the jobs end, or cancel them, and migrate again.';
    END IF;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("leasequeue", "0003_models"),
    ]

    operations = [
        migrations.CreateModel(
            name="EmittedEvent",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "project", "name", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("project", models.TextField(db_collation="C")),
                ("name", models.TextField(db_collation="C")),
                ("payload", django_leasequeue.models.base.PlainJSONField(null=True)),
                ("emitted_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
            ],
            options={
                "permissions": (("emit_event", "Can emit events"),),
                "indexes": [models.Index(fields=["expires_at"], name="leasequeue_emittedevent_expiry")],
            },
        ),
        migrations.CreateModel(
            name="JobStep",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "seq", "name", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("seq", models.BigIntegerField()),
                ("number", models.IntegerField()),
                ("name", models.TextField(db_collation="C")),
                ("value", django_leasequeue.models.base.PlainJSONField(null=True)),
                ("done_at", models.DateTimeField()),
                ("delivery", models.IntegerField()),
                ("until", models.DateTimeField(null=True)),
                ("project", models.TextField(db_collation="C", null=True)),
                ("event", models.TextField(db_collation="C", null=True)),
                (
                    "job",
                    django_leasequeue.models.base.SameNumber(
                        here="seq", related_name="steps", there="seq", to="leasequeue.job"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("event__isnull", False)),
                        fields=["event", "project", "seq"],
                        name="leasequeue_jobstep_event",
                    ),
                    models.Index(
                        condition=models.Q(("event__isnull", False)),
                        fields=["seq"],
                        name="leasequeue_jobstep_waiting",
                    ),
                    models.Index(
                        condition=models.Q(("event__isnull", True), ("value__isnull", True)),
                        fields=["done_at", "seq"],
                        name="leasequeue_jobstep_asleep",
                    ),
                ],
            },
        ),
        migrations.AddField("BulkOperation", "from_step", models.TextField(blank=True, null=True)),
        migrations.RunSQL(HOLDS + EMIT + WAKE, DROP),
        migrations.RunSQL(migrations.RunSQL.noop, REFUSE),
    ]
