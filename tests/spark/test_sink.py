"""The sink: every row a job, once, whatever Spark does again."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.models import EventKind, JobEvent, JobState, LakeStage, LakeWrite, LiveJob, StoredJob
from tests.engine.helpers import NODE, claim, enqueue, make, one
from tests.spark.conftest import Source

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def work() -> int:
    return make("work", preset="django")


def write(source: Source, frame: DataFrame, **options: Any) -> None:
    given = {name: value for name, value in {"queue": "work", **options}.items() if value is not None}
    frame.write.format("leasequeue").options(**source.options, **given).mode("append").save()


def test_columns_become_jobs_that_can_be_claimed(source: Source) -> None:
    later = timezone.now() + timedelta(hours=1)
    rows = [
        ("k1", "a 'quote'\t\\ \n", 5, 1, None, "t", b"\x00\xff\\\n"),
        ("k2", "", 0, 2, later, None, None),
        (None, None, None, 3, None, None, None),
    ]
    frame = source.session.createDataFrame(
        rows, "key string, text string, priority int, n bigint, run_at timestamp, tag string, body binary"
    )
    write(source, frame)
    jobs = {job.data["n"]: job for job in LiveJob.objects.all()}
    assert jobs[1].data == {"text": "a 'quote'\t\\ \n", "n": 1}
    assert (jobs[1].key, jobs[1].tag, jobs[1].rank, bytes(jobs[1].body)) == ("k1", "t", -5, b"\x00\xff\\\n")
    assert (jobs[2].state, jobs[2].available_at) == (JobState.DELAYED, later)
    assert jobs[3].data == {"text": None, "n": 3}
    assert JobEvent.objects.filter(kind=EventKind.ENQUEUED).count() == 3
    assert not LakeStage.objects.exists()
    assert [job.data["n"] for job in claim(10)] == [1, 3]


def test_data_as_json_text_and_queues_by_column(source: Source) -> None:
    make("other")
    frame = source.session.range(4).select(
        f.to_json(f.struct("id")).alias("data"), f.when(f.col("id") % 2 == 0, "work").otherwise("other").alias("queue")
    )
    write(source, frame, queue=None)
    assert sorted((job.queue.name, job.data["id"]) for job in StoredJob.objects.select_related("queue")) == [
        ("other", 1), ("other", 3), ("work", 0), ("work", 2),
    ]  # fmt: skip


def test_failing_and_retried_tasks_add_every_row_once(source: Source, tmp_path: Path) -> None:
    marker = str(tmp_path / "failed")

    def fail_once(batches: Any) -> Any:
        for batch in batches:
            yield batch
            if 1_900 in batch.column(0).to_pylist() and not Path(marker).exists():
                Path(marker).touch()
                raise RuntimeError("the task dies after it has written")

    frame = source.session.range(0, 2_000, 1, 2).mapInArrow(fail_once, "id bigint")
    write(source, frame)
    assert Path(marker).exists()
    assert StoredJob.objects.count() == 2_000
    assert sorted(job["id"] for job in StoredJob.objects.values_list("data", flat=True)) == list(range(2_000))


def test_a_repeated_write_id_adds_nothing_and_overwriting_is_refused(source: Source) -> None:
    frame = source.session.range(10)
    for number, jobs in ((1, 10), (1, 10), (2, 20)):
        write(source, frame, writeId=f"backfill-{number}")
        assert StoredJob.objects.count() == jobs
    noted = LakeWrite.objects.order_by("id").values_list("write_id", "staged", "enqueued")
    assert list(noted) == [("backfill-1", 10, 10), ("backfill-2", 10, 10)]
    writer = source.session.range(1).write.format("leasequeue").options(**source.options, queue="work")
    with pytest.raises(PySparkException, match="only adds jobs"):
        writer.mode("overwrite").save()


@pytest.mark.parametrize("visible", ["all", "parts"])
def test_keys_that_are_taken_add_nothing_and_those_of_jobs_that_ended_are_free(source: Source, visible: str) -> None:
    make("work", preset="topics")
    enqueue(NewJob(data="done", key="k1"), NewJob(data="held", key="k2"))
    job = one()
    engine.run(engine.finish([engine.Ending(job.seq, job.token, result_ttl_ms=60_000)], NODE))
    # One partition: rows of several are added in whatever order they arrive.
    frame = source.session.createDataFrame([("k1", 1), ("k2", 2), ("k1", 3)], "key string, n int").coalesce(1)
    write(source, frame, visible=visible)
    live = {job.key: job.data for job in LiveJob.objects.all()}
    assert live == {"k1": {"n": 1}, "k2": "held"}


def test_caps_and_reply_channels_are_the_engines(source: Source) -> None:
    make("small", type="log", cap_records=3)
    make("full", cap_records=3, discard="reject")
    frame = source.session.range(0, 5, 1, 1).withColumn("reply_to", f.lit("channel"))
    write(source, frame, queue="small")
    assert sorted(job.data["id"] for job in StoredJob.objects.all()) == [2, 3, 4]
    assert set(StoredJob.objects.values_list("reply_to", flat=True)) == {"channel"}
    with pytest.raises(PySparkException, match="is full"):
        write(source, frame, queue="full")
    assert not LiveJob.objects.filter(state=JobState.READY).exists()


def test_a_replayed_stream_batch_adds_nothing(source: Source, tmp_path: Path) -> None:
    inputs, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    inputs.mkdir()
    (inputs / "1.json").write_text("\n".join(json.dumps({"n": n}) for n in range(50)))

    def drain() -> None:
        stream = source.session.readStream.schema("n int").json(str(inputs))
        writer = stream.writeStream.format("leasequeue").options(**source.options, queue="work")
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(600)

    drain()
    assert StoredJob.objects.count() == 50
    for note in (checkpoint / "commits").iterdir():
        note.unlink()  # as after a crash between our commit and Spark's
    drain()
    assert StoredJob.objects.count() == 50
    (inputs / "2.json").write_text(json.dumps({"n": 50}))
    drain()
    assert StoredJob.objects.count() == 51


@pytest.mark.parametrize(
    ("sql", "options", "message"),
    [
        ("select 1 as n", {"queue": None}, "Name the queue"),
        ("select 1 as n", {"queue": "missing"}, "There is no queue 'missing'"),
        ("select '1' as priority", {}, "must be"), ("select 1 as n, '{}' as data", {}, "would be lost"),
        ("select 1 as n", {"visible": "parts"}, "needs a column 'key'"), ("select '' as key", {}, "1 to 1024 bytes"),
        ("select 'no json' as data", {}, "json"), ("select 1 as n", {"replay": "jobs"}, "source_seq"),
        ("select unbase64('AAAA') as b", {}, "binary column"),
        # A reference to a large payload.
        ("""select ' {"$large":{"data":{"id":1}}}' as data""", {}, "redrive"),
    ],
)  # fmt: skip
def test_bad_input_says_why_and_adds_nothing(source: Source, sql: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        write(source, source.session.sql(sql), **options)
    assert not StoredJob.objects.exists()
