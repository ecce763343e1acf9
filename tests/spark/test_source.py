"""The batch source: what is in the tables, exactly, whatever is in them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.utils import timezone
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In
from pyspark.sql.types import StructType

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.models import JobState, LiveJob
from django_leasequeue.spark.source import LeaseQueueDataSource, Slice
from tests.engine.helpers import NODE, enqueue, make, one, put
from tests.spark.conftest import Source, plan
from tests.spark.helpers import NOON, Database, at, batch, event, fail, many
from tests.support.environment import python
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

ODD = "a 'quote', \"another\", a\ttab, a \\ backslash,\r\na newline, ünïcode \U0001f600 and \\N"


def test_empty_tables_have_no_rows_and_many_slices_every_row_once(source: Source, database: Database) -> None:
    for table in ("events", "jobs", "results"):
        frame = source.read(table)
        assert "seq" in frame.columns
        assert frame.collect() == []
    many(database, 30_000)
    frame = source.read(schema="seq bigint", rowsPerPartition=1_000)
    assert frame.rdd.getNumPartitions() > 5
    assert frame.agg(f.count("seq"), f.countDistinct("seq"), f.sum("seq")).first() == (30_000, 30_000, 450_015_000)


def test_text_null_empty_and_times_stay_what_they_are(source: Source, database: Database) -> None:
    database.execute("SET TimeZone = 'Asia/Kolkata'")
    for number, text in enumerate([ODD, "", None, "NULL", " "], start=1):
        detail = None if text is None else {"text": text}
        event(database, seq=number, node=text, detail=detail, occurred_at=at(0.000001), deadline=NOON)
    rows = source.read(schema="seq bigint, node string, detail string").orderBy("seq").collect()
    assert [row.node for row in rows] == [ODD, "", None, "NULL", " "]
    assert [row.detail is None for row in rows] == [False, False, True, False, False]
    nodes = [row.node for row in source.read(schema="node string").collect()]
    assert sorted(nodes, key=str) == sorted([ODD, "", None, "NULL", " "], key=str), "a single column keeps its nulls"
    frame = source.session.read.format("leasequeue").options(alias="default")
    table = frame.schema("occurred_at timestamp, deadline timestamp").load().toArrow()
    assert set(table.column("occurred_at").to_pylist()) == {at(0.000001)}
    assert set(table.column("deadline").to_pylist()) == {NOON}


def test_a_row_of_the_log_is_an_event_a_job(source: Source, database: Database) -> None:
    jobs = {"occurred_at": NOON, "queue_id": 1, "low": 4, "high": 9}
    batch(database, id=7, kind=2, seqs=[4, 9], deliveries=[3, 1], waited=[10, 20], **jobs)
    batch(database, id=8, kind=5, seqs=[9, 4], ran=[None, 5], **jobs)
    batch(database, id=9, kind=1, seqs=[4, 9], **jobs)
    rows = source.read(schema="id bigint, seq bigint, deliveries int, waited int, ran int").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [
        (7_168, 4, 3, 10, None), (7_169, 9, 1, 20, None), (8_192, 9, 1, None, None), (8_193, 4, 1, None, 5),
        (9_216, 4, None, None, None), (9_217, 9, None, None, None),
    ]  # fmt: skip
    view = database.execute("SELECT id, seq, deliveries, waited, ran FROM leasequeue_jobevent ORDER BY id").fetchall()
    assert view == [tuple(row) for row in rows]
    stored = source.read(batches=True).orderBy("id").collect()
    assert [(row.id, row.seqs, row.deliveries, row.waited, row.ran) for row in stored] == [
        (7, [4, 9], [3, 1], [10, 20], None), (8, [9, 4], None, None, [None, 5]), (9, [4, 9], None, None, None),
    ]  # fmt: skip


def test_jobs_and_results_with_binary_payloads(source: Source) -> None:
    enqueue(NewJob(data={"n": 1}, body=b"\x00\xff", key="k", tag="t"), NewJob(data=None))
    job = one()
    engine.run(engine.finish([engine.Ending(job.seq, job.token, result={"ok": True})], NODE))
    live = source.read("jobs", numPartitions=1).collect()
    done = source.read("results").collect()
    assert [(row.queue, row.state, row.body) for row in live] == [("work", "ready", None)]
    told = ("k", "completed", '{"ok":true}', b"\x00\xff")
    assert [(row.key, row.state, row.result, bytes(row.body)) for row in done] == [told]


def test_jobs_in_every_place(source: Source) -> None:
    letters = {"max_deliveries": 1, "exhaust_at": "release"}
    make("work", **letters, dead_letter="self")
    make("letters", type="log")
    make("again")
    make("to-log", **letters, dead_letter="letters")
    make("to-queue", **letters, dead_letter="again")
    hour = timedelta(hours=1)
    for queue in ("work", "to-log", "to-queue"):
        fields = {"key": f"k-{queue}", "meta": {"m": 1}, "tag": "t", "reply_to": "c", "ttl_ms": 3_600_000}
        put(1, queue, name="app.task", **fields)
        fail(queue, "n1", 1)
    put(1, run_at=timezone.now() + hour, priority=3)
    put(3, ttl_ms=3_600_000)
    put(1, "letters")
    engine.run(engine.claim("work", "n2", 2, grace_ms=5_000))
    rows = {row.seq: row.asDict() for row in source.read("jobs").collect()}
    columns = [name for name in next(iter(rows.values())) if name not in {"queue", "project", "errors", "data", "meta"}]
    live = {job.seq: job for job in LiveJob.objects.all()}
    assert sorted(job.state for job in live.values()) == [0, 0, 1, 2, 2, 3, 4, 4]
    assert {row["state"] for row in rows.values()} == {"ready", "delayed", "leased", "dead", "record"}
    for seq, job in live.items():
        expected = {name: getattr(job, name) for name in columns} | {"state": JobState(job.state).label}
        assert {name: _aware(rows[seq][name]) for name in columns} == expected
        errors = json.loads(rows[seq]["errors"] or "null")
        assert (errors is None) == (job.error is None)
        assert (rows[seq]["queue"], json.loads(rows[seq]["data"] or "null")) == (job.queue.name, job.data)
    assert rows.keys() == live.keys()


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def test_an_open_transaction_ends_the_read_before_it(source: Source, database: Database, test_dsn: str) -> None:
    event(database, seq=1)
    with psycopg.connect(test_dsn) as slow:
        event(slow, seq=2)
        event(database, seq=3)
        assert [row.seq for row in source.read(schema="seq bigint").collect()] == [1]
        slow.commit()
    assert sorted(row.seq for row in source.read(schema="seq bigint").collect()) == [1, 2, 3]


@pytest.mark.parametrize(("condition", "seqs"), [
    ("seq = 2", [2]), ("seq in (1, 3, 9)", [1, 3]), ("not (seq = 2)", [1, 3]), ("node = 'it''s %s {x}'", [1]),
    ("node is null", [3]), ("node is not null and seq > 1", [2]), ("event = 'claimed'", [2]), ("node like 'it%'", [1]),
    ("node > 'a'", [1, 2]), ("occurred_at >= timestamp '2030-01-01 12:00:01Z'", [2, 3]),
])  # fmt: skip
def test_filters_mean_the_same_either_way(source: Source, database: Database, condition: str, seqs: list[int]) -> None:
    event(database, seq=1, node="it's %s {x}")
    event(database, seq=2, node="n2", kind=2, occurred_at=at(1))
    event(database, seq=3, occurred_at=at(2))
    for pushdown in (True, False):
        rows = source.read(schema="seq bigint, node string, event string, occurred_at timestamp", pushdown=pushdown)
        assert sorted(row.seq for row in rows.where(condition).collect()) == seqs


def test_filters_and_columns_but_no_password_are_in_the_plan(source: Source, database: Database) -> None:
    """Time, queue and kind go to PostgreSQL; what is said of each job of a row stays with Spark."""
    event(database)
    schema = "seq bigint, queue string, kind smallint, occurred_at timestamp"
    asked = [
        EqualTo(("queue",), "work"), In(("kind",), (2, 5)), GreaterThanOrEqual(("occurred_at",), at(0)),
        EqualTo(("deliveries",), 1),
    ]  # fmt: skip
    reader = LeaseQueueDataSource({**source.options, "pushdown": "true"}).reader(StructType.fromDDL(schema))
    assert list(reader.pushFilters(asked)) == asked[3:]
    (piece, *_) = reader.partitions()
    assert isinstance(piece, Slice)
    for text in ("(q.name) = 'work'", "(r.kind) IN (2, 5)", "(r.occurred_at) >= '2030-01-01 12:00:00+00:00'"):
        assert text in piece.query
    # No other columns are read than the schema names.
    assert not any(name in piece.query for name in ("r.detail", "r.node", "r.claim"))
    rows = source.read(schema=schema, pushdown=True)
    told = plan(rows.where("queue = 'work' and kind in (2, 5) and occurred_at >= timestamp '2030-01-01 12:00:00'"))
    (scan,) = [line for line in told.splitlines() if "PushedFilters" in line]
    for name in ("EqualTo(queue,work)", "In(kind, [2,5])", "GreaterThanOrEqual(occurred_at,"):
        assert name in scan, told
    frame = source.session.read.format("leasequeue").options(**source.options, password="hunter2-hunter2").load()
    execution = frame._jdf.queryExecution()
    assert "hunter2" not in execution.toString() + execution.executedPlan().toString()


def test_jobs_in_parts_are_those_of_one_moment(source: Source, database: Database) -> None:
    for _ in range(2):
        put(10_000)
    frame = source.read("jobs", schema="seq bigint, state string", numPartitions=6)
    assert frame.rdd.getNumPartitions() >= 5
    database.execute("SET session_replication_role = replica")
    database.execute("DELETE FROM leasequeue_job WHERE seq % 2 = 0")
    # Planned before the delete: the snapshot was taken then, and all parts see it.
    assert frame.count() in {20_000, 10_000}
    held = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasequeue-spark' AND state LIKE 'idle in%'"
    eventually(lambda: database.execute(held).fetchone() == (0,), "nobody holds the snapshot once all parts are read")


@pytest.mark.parametrize(("options", "schema", "message"), [
    ({"table": "nothing"}, None, "events, jobs, results"), ({"tabel": "events"}, None, "knows no option tabel"),
    ({"numPartitions": "0"}, None, "an integer from 1"), ({"alias": "default"}, "nope int", "no column 'nope'"),
    ({"dsn": "postgresql://u:secret@h/d"}, None, "must not hold a password"),
    ({"alias": "default", "host": "elsewhere"}, None, "leave out"),
    ({"alias": "default"}, "seq int", "is bigint; the schema"),
])  # fmt: skip
def test_bad_options_say_what_to_do(source: Source, options: dict[str, str], schema: str | None, message: str) -> None:
    with pytest.raises(PySparkException, match=message) as caught:
        reader = source.session.read.format("leasequeue").options(**options)
        (reader.schema(schema) if schema else reader).load().collect()
    assert "secret" not in str(caught.value)


def test_workers_import_no_django() -> None:
    script = (
        "import sys, pyspark_leasequeue, django_leasequeue.spark.sink, django_leasequeue.spark.stream;"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in {'django', 'rest_framework', 'pgtrigger'}))"
    )
    assert python("-c", script).stdout.strip() == "[]"
