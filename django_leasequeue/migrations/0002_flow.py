"""Limits and workflows: new tables, and a trigger on claims that costs plain ones no function call."""

import django.contrib.postgres.fields
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

# django-pgtrigger removes its triggers with their tables, but leaves their functions.
DROP_TRIGGER_FUNCTIONS = "DROP FUNCTION IF EXISTS pgtrigger_flow_97f85()"

# Jobs have left a claim. Where the statement that took them out is the whole transaction, each job that has ended, or that is retried later,
# passes its slot on to the next waiting job of its key. The number of taken slots stays: the function neither counts slots nor locks the
# key, and it waits for no other transaction. Everything else becomes a turn, for a claimer of the queue in which the next job of the key
# waits: the queue of the claim may be served by others, or be deleted.
LEFT = """
CREATE FUNCTION leasequeue_left(in_queue bigint, in_flags int, in_seqs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    rest bigint[] := in_seqs;
    own bigint[];
    freed bigint[];  -- keys, once for each slot
    parked bigint[];
    later bigint[];
    short bigint[];
    locked bigint[];
    keys bigint[];  -- those of the jobs, whether each lets one start at a time, and whether keys take turns
    singles boolean[];
    fairs boolean[];
    passed bigint[];  -- keys, once for each slot
    found bigint[];  -- the jobs that the slots go to, and those of them that were there to start
    started bigint[];
    moved bigint[];
    places bigint[];
    alone text := current_setting('leasequeue.alone', true);  -- on, or ended: what has left has ended
    told bigint[];
    woken bigint[] := '{}';
    ended int;
BEGIN
    IF cardinality(in_seqs) = 0 THEN
        RETURN;
    ELSIF in_flags & 128 = 0 THEN
        rest := NULL;
    -- An old snapshot would not see who waits. What is seldom needed is a statement of its own: most of a short one is its start.
    ELSIF alone IN ('on', 'ended') AND current_setting('transaction_isolation') = 'read committed' THEN
        WITH o AS MATERIALIZED (
            SELECT m.ctid AS place, m.seq, m.key, k.fits, l.fair FROM leasequeue_member m
            CROSS JOIN LATERAL (SELECT k.limit_id, k.fits FROM leasequeue_limitkey k WHERE k.id = m.key OFFSET 0) k
            CROSS JOIN LATERAL (SELECT l.fair FROM leasequeue_limit l
                WHERE l.id = k.limit_id AND l.concurrency = k.fits AND l.rate IS NULL OFFSET 0) l
            WHERE m.seq = ANY (in_seqs) AND m.workflow IS NULL FOR UPDATE OF m SKIP LOCKED
        ), gone AS (
            DELETE FROM leasequeue_member m WHERE m.ctid = ANY (ARRAY(SELECT o.place FROM o)) AND (
                alone = 'ended' OR EXISTS (SELECT FROM leasequeue_jobresult r WHERE r.seq = m.seq OFFSET 0)
                OR NOT EXISTS (SELECT FROM leasequeue_job j WHERE j.seq = m.seq OFFSET 0))
            RETURNING m.key, m.taken
        )
        SELECT a.*, g.* INTO own, keys, singles, fairs, freed, ended FROM (
            SELECT array_agg(o.seq), array_agg(o.key), array_agg(o.fits = 1), array_agg(o.fair) FROM o) a
        CROSS JOIN (SELECT array_agg(g.key) FILTER (WHERE g.taken), count(*) FROM gone g) g;
        IF ended < cardinality(own) THEN
            WITH u AS (
                UPDATE leasequeue_member m SET taken = false WHERE m.seq = ANY (own) AND m.taken
                    AND EXISTS (SELECT FROM leasequeue_delayed d WHERE d.seq = m.seq AND d.flags & 512 = 0 OFFSET 0)
                RETURNING m.seq, m.key
            )
            SELECT array_agg(u.seq), array_agg(u.key) INTO parked, later FROM u;
            freed := freed || later;
        END IF;
        WHILE freed IS NOT NULL LOOP
            short := freed;
            IF locked IS NULL OR EXISTS (SELECT FROM leasequeue_member m WHERE m.key = ANY (freed) AND m.waits) THEN
                WITH k AS MATERIALIZED (
                    SELECT f.id, f.n, k.single, k.fair FROM (SELECT f.id, count(*) AS n FROM unnest(freed) AS f(id) GROUP BY f.id) f
                    JOIN (SELECT DISTINCT * FROM unnest(keys, singles, fairs) AS k(id, single, fair)) k ON k.id = f.id
                ), m AS MATERIALIZED (
                    -- Those of a fair limit go to the back of their rank, so that keys take turns.
                    SELECT m.seq, m.queue_id, k.id AS key, CASE WHEN k.fair THEN nextval('leasequeue_job_seq_seq') END AS position
                    FROM k CROSS JOIN LATERAL (
                        SELECT m.seq, m.queue_id FROM leasequeue_member m WHERE m.key = k.id AND m.waits
                            -- One at a time keep their order: the first one is not passed over, whoever has it.
                            AND (NOT k.single OR m.seq = (SELECT w.seq FROM leasequeue_member w WHERE w.key = k.id AND w.waits
                                ORDER BY w.rank, w.seq LIMIT 1))
                        ORDER BY m.rank, m.seq LIMIT k.n FOR UPDATE SKIP LOCKED) m
                ), p AS MATERIALIZED (
                    SELECT d.ctid AS place FROM leasequeue_delayed d WHERE d.seq = ANY (ARRAY(SELECT m.seq FROM m)) FOR UPDATE SKIP LOCKED
                ), gone AS (
                    DELETE FROM leasequeue_delayed d WHERE d.ctid = ANY (ARRAY(SELECT p.place FROM p)) RETURNING d.*
                ), taken AS (
                    -- By number: at a place a row that has just been changed is not seen. The others may stay, and become turns.
                    UPDATE leasequeue_member SET waits = false, taken = true WHERE seq = ANY (ARRAY(SELECT gone.seq FROM gone))
                ), ready AS (
                    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries,
                        expires_at, tag)
                    SELECT g.queue_id, g.rank, CASE WHEN m.position IS NULL THEN 1 ELSE 2 END,
                        COALESCE(m.position, (SELECT COALESCE(j.position, j.seq) FROM leasequeue_job j WHERE j.seq = g.seq)), g.seq,
                        g.deliveries, g.flags & 255, clock_timestamp(), g.max_deliveries, g.expires_at, g.tag
                    FROM gone g JOIN m ON m.seq = g.seq
                )
                SELECT array_agg(m.key), array_agg(m.seq), array_agg(m.queue_id), ARRAY(SELECT gone.seq FROM gone),
                    array_agg(m.seq) FILTER (WHERE m.position IS NOT NULL), array_agg(m.position) FILTER (WHERE m.position IS NOT NULL)
                    INTO passed, found, told, started, moved, places FROM m;
                woken := woken || told;
                short := CASE WHEN cardinality(passed) = cardinality(freed) THEN NULL ELSE
                    NULLIF(ARRAY(SELECT unnest(freed) EXCEPT ALL SELECT unnest(passed)), '{}') END;
                IF moved IS NOT NULL THEN
                    UPDATE leasequeue_job j SET position = u.position FROM unnest(moved, places) AS u(seq, position)
                    WHERE j.seq = u.seq AND j.seq = ANY (moved);
                END IF;
                IF cardinality(started) < cardinality(found) THEN
                    -- Cancelled before they were members, or in this moment: a claimer looks, and the slot comes back by its turn.
                    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
                    SELECT m.queue_id, 'epoch', 2, array_agg(m.seq) FROM leasequeue_member m
                    WHERE m.seq = ANY (found) AND m.seq <> ALL (started) GROUP BY m.queue_id;
                END IF;
            END IF;
            -- No more are seen to wait. A claimer may just bring some under the limit, and has counted before this slot was free: it has
            -- locked the key. Who comes later sees the slot.
            EXIT WHEN short IS NULL;
            freed := NULL;
            IF locked IS NULL THEN
                locked := ARRAY(SELECT k.id FROM leasequeue_limitkey k WHERE k.id = ANY (short) FOR UPDATE SKIP LOCKED);
                SELECT array_agg(s.id) FILTER (WHERE l.id IS NOT NULL), array_agg(s.id) FILTER (WHERE l.id IS NULL)
                    INTO freed, short FROM unnest(short) AS s(id) LEFT JOIN unnest(locked) AS l(id) ON l.id = s.id;
            ELSE
                -- Another transaction has the next ones, and may be rolled back.
                SELECT array_agg(s.id) INTO short FROM unnest(short) AS s(id)
                WHERE EXISTS (SELECT FROM leasequeue_member m WHERE m.key = s.id AND m.waits OFFSET 0);
            END IF;
            IF short IS NOT NULL THEN
                WITH made AS (
                    INSERT INTO leasequeue_flowturn (queue_id, at, kind, key)
                    SELECT COALESCE(n.queue_id, in_queue), 'epoch', 3, s.id FROM (SELECT DISTINCT s.id FROM unnest(short) AS s(id)) s
                    LEFT JOIN LATERAL (
                        SELECT n.queue_id FROM leasequeue_member n WHERE n.key = s.id AND n.waits ORDER BY n.rank, n.seq LIMIT 1) n ON true
                    RETURNING queue_id
                )
                SELECT woken || array_agg(made.queue_id) INTO woken FROM made;
            END IF;
        END LOOP;
        IF ended < cardinality(in_seqs) THEN
            rest := ARRAY(SELECT m.seq FROM leasequeue_member m WHERE m.seq = ANY (in_seqs) AND m.seq <> ALL (COALESCE(parked, '{}')));
        ELSE
            rest := NULL;
        END IF;
    END IF;
    IF cardinality(rest) > 0 THEN
        WITH made AS (
            INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
            SELECT COALESCE(n.queue_id, in_queue), 'epoch', 2, array_agg(r.seq) FROM unnest(rest) AS r(seq)
            LEFT JOIN LATERAL (
                SELECT m.key FROM leasequeue_member m WHERE m.seq = r.seq AND m.workflow IS NULL OFFSET 0) m ON true
            LEFT JOIN LATERAL (
                SELECT n.queue_id FROM leasequeue_member n WHERE n.key = m.key AND n.waits ORDER BY n.rank, n.seq LIMIT 1) n ON true
            GROUP BY 1 RETURNING queue_id
        )
        SELECT woken || array_agg(made.queue_id) INTO woken FROM made;
    END IF;
    IF in_flags & 256 <> 0 THEN
        woken := woken || in_queue;
    END IF;
    -- One expression: who is cancelled in the middle would keep the lock.
    PERFORM CASE WHEN pg_try_advisory_lock(1280657731, u.id::int) THEN pg_advisory_unlock(1280657731, u.id::int)::text
        ELSE pg_notify('leasequeue', 'q' || u.id)::text END
    FROM (SELECT DISTINCT w.id FROM unnest(woken) AS w(id)) u;
END $$
"""
DROP_LEFT = "DROP FUNCTION leasequeue_left(bigint, int, bigint[])"

# Rows that change where they stand: room on the page for the next version, and vacuum by count.
STORAGE = """
ALTER TABLE leasequeue_member SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
ALTER TABLE leasequeue_limitkey SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE leasequeue_flowturn SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE leasequeue_workflow SET (fillfactor = 50);
"""

# Backward: nothing is left that would set held jobs free. Those of limits go on without; those of workflows that run would start before
# what they wait for.
GIVE_BACK = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM leasequeue_member m JOIN leasequeue_delayed d ON d.seq = m.seq
            JOIN leasequeue_workflow w ON w.id = m.workflow WHERE w.state = 0 AND d.available_at >= '9000-01-01 00:00+00') THEN
        RAISE EXCEPTION 'Workflows are running: the release before this migration would never start what waits in them.'
            USING HINT = 'Let them end, or cancel them, and migrate again.';
    END IF;
    PERFORM set_config('leasequeue.removes', statement_timestamp()::text, true);
    DELETE FROM leasequeue_job j USING leasequeue_delayed d, leasequeue_member m
        WHERE d.seq = j.seq AND m.seq = j.seq AND m.workflow IS NOT NULL AND d.available_at >= '9000-01-01 00:00+00';
    DELETE FROM leasequeue_delayed d USING leasequeue_member m
        WHERE m.seq = d.seq AND m.workflow IS NOT NULL AND d.available_at >= '9000-01-01 00:00+00';
    UPDATE leasequeue_delayed SET available_at = clock_timestamp(), flags = flags & 127
        WHERE available_at >= '9000-01-01 00:00+00';
END $$
"""


class Migration(migrations.Migration):
    dependencies = [
        ("leasequeue", "0001_initial"),
    ]

    operations = [
        # First forward is last backward.
        migrations.RunSQL(migrations.RunSQL.noop, DROP_TRIGGER_FUNCTIONS),
        migrations.RunSQL(LEFT, DROP_LEFT),
        migrations.CreateModel(
            name="FlowTurn",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                (
                    "kind",
                    models.SmallIntegerField(
                        choices=[
                            (1, "bring new jobs under their limits"),
                            (2, "look where jobs stand that have moved"),
                            (3, "admit jobs of a key"),
                            (4, "link new nodes of a workflow"),
                            (5, "give a node the new number of its job"),
                        ]
                    ),
                ),
                ("key", models.BigIntegerField(null=True)),
                (
                    "seqs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), null=True, size=None
                    ),
                ),
                ("detail", models.JSONField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Limit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("project", models.CharField(blank=True, default="", max_length=256)),
                ("name", models.CharField(max_length=255)),
                ("concurrency", models.IntegerField(blank=True, null=True)),
                ("rate", models.IntegerField(blank=True, null=True)),
                ("per_ms", models.BigIntegerField(blank=True, null=True)),
                ("burst", models.IntegerField(default=0)),
                ("fair", models.BooleanField(default=False)),
                ("pinned", models.BooleanField(default=False)),
                ("updated_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="LimitKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.TextField(db_collation="C")),
                ("paid_until", models.DateTimeField(null=True)),
                (
                    "started",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), null=True, size=None
                    ),
                ),
                (
                    "counts",
                    django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), null=True, size=None),
                ),
                ("fits", models.IntegerField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Member",
            fields=[
                ("seq", models.BigIntegerField(primary_key=True, serialize=False)),
                ("rank", models.SmallIntegerField(default=0)),
                ("key", models.BigIntegerField(null=True)),
                ("taken", models.BooleanField(default=False)),
                ("waits", models.BooleanField(default=False)),
                ("workflow", models.BigIntegerField(null=True)),
                (
                    "state",
                    models.SmallIntegerField(
                        choices=[(0, "open"), (1, "completed"), (2, "failed"), (3, "cancelled")], default=0
                    ),
                ),
                ("pending", models.IntegerField(default=0)),
                ("tolerant", models.BooleanField(default=False)),
                ("for_failure", models.BooleanField(db_default=False, default=False)),
                ("delay_ms", models.BigIntegerField(null=True)),
                ("not_before", models.DateTimeField(null=True)),
                ("place", models.IntegerField(default=0)),
                ("label", models.TextField(default="")),
                ("task", models.TextField(null=True)),
                (
                    "parents",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), null=True, size=None
                    ),
                ),
                (
                    "children",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), null=True, size=None
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Workflow",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("uid", models.UUIDField(unique=True)),
                ("project", models.CharField(blank=True, default="", max_length=256)),
                ("name", models.CharField(blank=True, default="", max_length=255)),
                (
                    "state",
                    models.SmallIntegerField(
                        choices=[(0, "running"), (1, "completed"), (2, "failed"), (3, "cancelled")], default=0
                    ),
                ),
                (
                    "shape",
                    models.SmallIntegerField(
                        choices=[
                            (0, "value of the last job"),
                            (1, "list of the values of the last jobs"),
                            (2, "mapping of the names of the last jobs to their values"),
                        ],
                        db_default=2,
                        default=2,
                    ),
                ),
                ("total", models.IntegerField()),
                ("edges", models.IntegerField(default=0, db_default=0)),
                ("completed", models.IntegerField(default=0)),
                ("failed", models.IntegerField(default=0)),
                ("cancelled", models.IntegerField(default=0)),
                ("on_failure", models.BigIntegerField(null=True)),
                ("created_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField(null=True)),
            ],
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="claim",
            trigger=pgtrigger.compiler.Trigger(
                name="flow",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.flags & 384 <> 0)",
                    func="\n    PERFORM leasequeue_left(OLD.queue_id, OLD.flags,\n        ARRAY(SELECT unnest(OLD.seqs) EXCEPT SELECT unnest(NEW.seqs)));\n    RETURN NULL;\n",
                    hash="3d3e3a5b077a0cc87b0e0f67a9a33a36303c6a52",
                    ignore_func_name="_pgtrigger_should_ignore",
                    operation='UPDATE OF "seqs" OR DELETE',
                    pgid="pgtrigger_flow_97f85",
                    table="leasequeue_claim",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddField(
            model_name="flowturn",
            name="queue",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="leasequeue.queue",
            ),
        ),
        migrations.AddConstraint(
            model_name="limit",
            constraint=models.UniqueConstraint(fields=("project", "name"), name="leasequeue_limit_name"),
        ),
        migrations.AddConstraint(
            model_name="limit",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("concurrency__isnull", True), ("concurrency__range", (1, 10000)), _connector="OR"),
                    models.Q(
                        models.Q(("per_ms__isnull", True), ("rate__isnull", True)),
                        models.Q(("per_ms__range", (100, 86400000)), ("rate__range", (1, 1000000))),
                        _connector="OR",
                    ),
                    ("burst__range", (0, 1000000)),
                ),
                name="leasequeue_limit_values",
            ),
        ),
        migrations.AddField(
            model_name="limitkey",
            name="limit",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="leasequeue.limit",
            ),
        ),
        migrations.AddField(
            model_name="member",
            name="queue",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="leasequeue.queue",
            ),
        ),
        migrations.AddIndex(
            model_name="workflow",
            index=models.Index(
                condition=models.Q(("expires_at__isnull", False)),
                fields=["expires_at"],
                name="leasequeue_workflow_expires",
            ),
        ),
        migrations.AddIndex(
            model_name="flowturn",
            index=models.Index(fields=["queue", "at", "id"], name="leasequeue_flowturn_due"),
        ),
        migrations.AddIndex(
            model_name="flowturn",
            index=models.Index(condition=models.Q(("kind", 4)), fields=["key"], name="leasequeue_flowturn_extend"),
        ),
        migrations.AddIndex(
            model_name="flowturn",
            index=models.Index(condition=models.Q(("kind", 5)), fields=["key"], name="leasequeue_flowturn_follow"),
        ),
        migrations.AddIndex(
            model_name="flowturn",
            index=models.Index(condition=models.Q(("kind", 3)), fields=["key"], name="leasequeue_flowturn_key"),
        ),
        migrations.AddConstraint(
            model_name="limitkey",
            constraint=models.UniqueConstraint(fields=("limit", "key"), name="leasequeue_limitkey_key"),
        ),
        migrations.AddIndex(
            model_name="member",
            index=models.Index(
                condition=models.Q(("waits", True)), fields=["key", "rank", "seq"], name="leasequeue_member_waits"
            ),
        ),
        migrations.AddIndex(
            model_name="member",
            index=models.Index(condition=models.Q(("taken", True)), fields=["key"], name="leasequeue_member_taken"),
        ),
        migrations.AddIndex(
            model_name="member",
            index=models.Index(
                condition=models.Q(("workflow__isnull", False)),
                fields=["workflow", "seq"],
                name="leasequeue_member_workflow",
            ),
        ),
        migrations.AddField(model_name="queue", name="concurrency", field=models.IntegerField(default=0, db_default=0)),
        migrations.AddConstraint(
            model_name="queue",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("concurrency__range", (0, 10000)),
                    models.Q(("concurrency", 0), ("claim_jitter_ms", 0), _connector="OR"),
                ),
                name="leasequeue_queue_concurrency",
            ),
        ),
        migrations.RunSQL(STORAGE, GIVE_BACK),
    ]
