"""Rows on their way to the engine: checked as at the Python door, moved all or none, taken from nobody. No JVM."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.exceptions import InvalidOption, PayloadTooLarge, QueueNotFound
from django_leasequeue.models import DeadLetter, JobResult, JobState, LakeStage, LakeWrite, LiveJob, StoredJob
from django_leasequeue.spark import arrow, sink, staging
from django_leasequeue.spark.database import WRITE, Options
from tests.engine.helpers import NODE, claim, enqueue, make
from tests.spark.helpers import fail, place

pytestmark = pytest.mark.django_db(transaction=True)

KINDS = {
    "string": types.StringType(), "int": types.IntegerType(), "bigint": types.LongType(),
    "binary": types.BinaryType(), "timestamp": types.TimestampType(), "double": types.DoubleType(),
}  # fmt: skip
FLOAT = {"double": pa.float64()}


class Writer:
    """A DataFrame's write without Spark: one task, and the driver's commit."""

    def __init__(self, dsn: str) -> None:
        self.place = place(dsn)

    def sink(self, ddl: str, **options: Any) -> sink.BatchSink:
        pairs = [tuple(word.split()) for word in ddl.split(",")]
        schema = types.StructType([types.StructField(name, KINDS[kind]) for name, kind in pairs])
        words = {name: str(value) for name, value in {"queue": "work", **options}.items() if value is not None}
        return sink.BatchSink(Options({**self.place, **words}, WRITE, "sink"), schema, False)

    def write(self, ddl: str, *rows: tuple[Any, ...], **options: Any) -> None:
        made = self.sink(ddl, **options)
        message = made.write(iter([batch_of(ddl, rows)]))
        try:
            made.commit([message])
        except Exception:
            made.abort([message])
            raise


def batch_of(ddl: str, rows: Any) -> pa.RecordBatch:
    pairs = [tuple(word.split()) for word in ddl.split(",")]
    schema = pa.schema([pa.field(n, FLOAT.get(k) or arrow.arrow_schema([(n, k)]).field(0).type) for n, k in pairs])
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


@pytest.fixture
def writer(test_dsn: str) -> Writer:
    make("work")
    return Writer(test_dsn)


@pytest.mark.parametrize(("column", "good", "bad", "message"), [
    ("ttl_ms bigint", 5, -5, "must be an integer from 1 to"),
    ("result_ttl_ms int", 5, 0, "must be an integer from 1 to"),
    ("max_deliveries int", 0, -1, "must be an integer from 0 to"),
    ("meta string", '{"a":1}', "[1]", "must be a JSON object"),
    ("meta string", None, '{"$a":1}', "reserved for what the queues note"),
    ("meta string", None, "{no", "meta: Expecting property name"), ("reply_to string", "a", "a b", "without spaces"),
    ("reply_to string", "a" * 63, "é" * 32, "must be 1 to 63 bytes; it has 64"),
    ("key string", "k", "", "must be 1 to 1024 bytes"),
    ("run_at timestamp", datetime(2030, 1, 1, tzinfo=UTC), datetime(9_500, 1, 1, tzinfo=UTC), "after the year"),
    ("data string", "1", "no json", "Column 'data': invalid input syntax for type json"),
    ("data string", '"\\\\u0000"', '"\\u0000"', r"character U\+0000"),
    ("price double", 1.5, float("nan"), "not JSON compliant"),
])  # fmt: skip
def test_a_row_that_is_no_job_is_an_answer(writer: Writer, column: str, good: Any, bad: Any, message: str) -> None:
    ddl = f"tag string,{column}"
    made = writer.sink(ddl)
    batches = iter([batch_of(ddl, [("t0", good)]), batch_of(ddl, [("t1", good), ("t2", bad)]), batch_of(ddl, [])])
    answer = made.write(batches)
    assert isinstance(answer, sink.RefusedRow)  # a task that fails is tried again
    assert list(batches) == []  # Spark waits for that
    with pytest.raises(InvalidOption, match=f"^Row 3 of this partition.*{message}.*Nothing was enqueued"):
        made.commit([answer, None])
    assert not StoredJob.objects.exists()
    assert not LakeStage.objects.exists()
    assert not LakeWrite.objects.exists()


def test_a_payload_is_measured_as_a_whole(writer: Writer, settings: Any) -> None:
    ddl = "data string,meta string,body binary"
    row = ('"' + "é" * 20 + '"', '{"a":"' + "b" * 20 + '"}', b"c" * 30)
    whole = 42 + 28 + 30
    writer.write(ddl, row, maxPayloadBytes=whole)
    with pytest.raises(InvalidOption, match=f"has {whole} bytes, more than {whole - 1} bytes"):
        writer.write(ddl, row, maxPayloadBytes=whole - 1)
    assert StoredJob.objects.count() == 1
    refused = staging.Rows(["body"], "work", 3)
    with pytest.raises(PayloadTooLarge):
        list(refused.lines("p", iter([batch_of("body binary", [(b"1234",)])])))
    settings.LEASEQUEUE = {**getattr(settings, "LEASEQUEUE", {}), "MAX_PAYLOAD_BYTES": 10}
    with pytest.raises(InvalidOption, match="more than 10 bytes"):
        writer.write("data string", ('"' + "a" * 10 + '"',))
    make("ranked", priority_order="desc")
    writer.write("priority bigint", (2**40,), (-(2**40),), queue="ranked")
    assert StoredJob.objects.filter(queue__name="ranked").count() == 2, "priorities are brought into range"


def test_parts_that_were_not_moved_are_an_error(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "CHUNK", 2)
    move = sink.Sink._enqueue

    def lose(self: sink.Sink, connection: Any, names: list[str], low: int, high: int) -> int:
        added = move(self, connection, names, low, high)
        connection.execute("DELETE FROM leasequeue_lakestage WHERE id > %s", [high])
        return added

    rows = [(f"k{n}", n) for n in range(6)]
    monkeypatch.setattr(sink.Sink, "_enqueue", lose)
    with pytest.raises(sink.WriteBroken, match="Write again"):
        writer.write("key string,n int", *rows, visible="parts", writeId="w")
    assert not LakeWrite.objects.exists()
    monkeypatch.setattr(sink.Sink, "_enqueue", move)
    writer.write("key string,n int", *rows, visible="parts", writeId="w")
    assert set(StoredJob.objects.values_list("key", flat=True)) == {f"k{n}" for n in range(6)}


def die(queue: str, *jobs: NewJob) -> list[int]:
    """Dead letters of a queue's jobs; return their numbers where they are."""
    before = set(DeadLetter.objects.values_list("seq", flat=True))
    enqueue(*jobs, queue=queue)
    fail(queue, NODE, len(jobs))
    return sorted(set(DeadLetter.objects.values_list("seq", flat=True)) - before)


def test_a_letter_whose_key_is_taken_stays_where_it_is(writer: Writer) -> None:
    make("dead", max_deliveries=1, exhaust_at="release", dead_letter="self")
    seqs = die("dead", NewJob(data=0, key="k0"), NewJob(data=1, key="k1"), NewJob(data=2, key="k2"))
    enqueue(NewJob(data="there", key="k1"))
    rows = [(seq, f"k{n}", str(n)) for n, seq in enumerate(seqs)]
    writer.write("source_seq bigint,key string,data string", *rows, replay="jobs", writeId="w")
    moved = {job.key: job.data for job in StoredJob.objects.filter(queue__name="work")}
    assert moved == {"k0": 0, "k1": "there", "k2": 2}
    left = LiveJob.objects.get(queue__name="dead")
    assert (left.seq, left.key, left.state) == (seqs[1], "k1", JobState.DEAD)
    assert LakeWrite.objects.get().enqueued == 2
    # In its own queue under a key that somebody has: it keeps its own, and that still counts.
    enqueue(NewJob(data="held", key="held"), queue="dead")
    row = (seqs[1], "held", "1")
    writer.write("source_seq bigint,key string,data string", row, replay="jobs", queue="dead", writeId="w2")
    assert LiveJob.objects.get(seq=seqs[1]).state == JobState.DEAD
    (again,) = enqueue(NewJob(key="k1"), queue="dead")
    assert again.seq == seqs[1]
    # Home, under its own key.
    writer.write("source_seq bigint,key string,data string", (seqs[1], "k1", "1"), replay="jobs", queue=None)
    assert LiveJob.objects.get(key="k1", queue__name="dead").state == JobState.READY
    assert not DeadLetter.objects.exists()


def test_letters_of_a_dead_letter_topic_go_home_and_keep_their_meta(writer: Writer) -> None:
    make("mail", max_deliveries=1, exhaust_at="release", dead_letter="morgue")
    meta = {"n": 1, "price": 1.10, "deep": {"a": [True, None]}, "text": "x"}
    seqs = die("mail", NewJob(data=1, key="k1", meta=meta), NewJob(data=2))
    rows = [(seqs[0], "k1", "1", None), (seqs[1], None, "2", '{"mine":7}')]
    writer.write("source_seq bigint,key string,data string,meta string", *rows, replay="jobs", queue=None)
    jobs = {job.data: job for job in LiveJob.objects.filter(queue__name="mail", state=JobState.READY)}
    origin = {"$replayed_from": "morgue", "$replayed_deliveries": 1, "$replayed_fingerprint": "f1"}
    assert jobs[1].meta == {**meta, **origin, "$replayed_seq": seqs[0]}
    assert jobs[2].meta == {"mine": 7, **origin, "$replayed_seq": seqs[1]}
    assert not DeadLetter.objects.exists()
    assert not StoredJob.objects.filter(queue__name="morgue").exists()
    # A queue to go to may be named, and must be where the old one is gone.
    seqs = die("mail", NewJob(data=3))
    engine.run(engine.purge("mail"))
    engine.run(engine.delete("mail"))
    with pytest.raises(QueueNotFound, match="came from"):
        writer.write("source_seq bigint,data string", (seqs[0], "3"), replay="jobs", queue=None)
    assert DeadLetter.objects.count() == 1
    writer.write("source_seq bigint,data string", (seqs[0], "3"), replay="jobs")
    assert StoredJob.objects.filter(queue__name="work").count() == 1


def test_failed_results_are_taken_out_with_what_was_enqueued(writer: Writer) -> None:
    make("done", preset="topics")
    enqueue(*(NewJob(data=n, key=f"k{n}") for n in range(2)), queue="done")
    failure = engine.Failure("app.Boom", "boom", "", "f1")
    for job in claim(2, "done"):
        ending = engine.Ending(job.seq, job.token, failure=failure, result_ttl_ms=600_000)
        engine.run(engine.finish([ending], NODE))
    seqs = sorted(JobResult.objects.values_list("seq", flat=True))
    enqueue(NewJob(key="k1"))
    rows = [(seq, f"k{n}", str(n)) for n, seq in enumerate(seqs)]
    writer.write("source_seq bigint,key string,data string", *rows, replay="results")
    assert list(JobResult.objects.values_list("seq", flat=True)) == [seqs[1]]
    writer.write("source_seq bigint,key string,data string", (seqs[1], "k1", "1"), replay="results", queue=None)
    assert LiveJob.objects.get(key="k1", queue__name="done").state == JobState.READY
    assert not JobResult.objects.exists()


def test_a_time_that_python_does_not_have_names_its_row(writer: Writer) -> None:
    ddl = "run_at timestamp"
    far = pa.array([0, 2**62], pa.timestamp("us", tz="UTC"))
    answer = writer.sink(ddl).write(iter([pa.RecordBatch.from_arrays([far], names=["run_at"])]))
    assert isinstance(answer, sink.RefusedRow)
    assert answer.text.startswith("Row 2 of this partition (run_at='?'): run_at: ")
