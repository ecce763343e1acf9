"""The pipeline from jobs to the report: bronze and its checkpoint, late and repeated events, the archive, replays."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import duckdb
import pytest
from django.core.management import CommandError, call_command

from django_leasequeue import engine
from django_leasequeue.engine import NewJob, partitions
from django_leasequeue.engine.pool import connect
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import EventKind, JobEvent, JobState, LakeFigure, LakeSlice, LiveJob
from django_leasequeue.reaper.status import lake_status
from django_leasequeue.spark import archive, bronze, layout, pipeline, report, sink
from django_leasequeue.spark.layout import FORMATS, TABLES, Lake
from django_leasequeue.spark.session import said
from tests.engine.helpers import make, put
from tests.engine.lease_log import drawn, put_back
from tests.spark import gold
from tests.spark.conftest import Source, plan
from tests.spark.helpers import Database, at, batch, event, many, work

pytestmark = pytest.mark.django_db(transaction=True)
PARQUET = pytest.mark.parametrize("lake", ["parquet"], indirect=True)


def seqs(lake: Lake) -> list[int]:
    return sorted(row.seq for row in bronze.read(lake).select("seq").distinct().collect())


@pytest.mark.parametrize(
    ("lake", "log"), [("parquet", "events/_spark_metadata"), ("delta", "log/_delta_log")], indirect=["lake"]
)
def test_without_the_list_of_files(lake: Lake, source: Source, tmp_path: Path, database: Database, log: str) -> None:
    many(database, 3, jobs=1)
    # A driver that was killed before its first batch leaves this.
    Path(lake.checkpoint("bronze"), "commits").mkdir(parents=True)
    bronze.ingest(lake, source.options)
    shutil.move(lake.path("bronze", log), tmp_path / "kept")
    event(database, seq=4)
    with pytest.raises(InvalidOption, match="the list of the files that readers see, is gone"):
        bronze.ingest(lake, source.options)
    shutil.copytree(tmp_path / "kept", lake.path("bronze", log))
    assert bronze.ingest(lake, source.options) == 1
    assert seqs(lake) == [1, 2, 3, 4]
    # The other way out: all that the database has once more.
    shutil.rmtree(lake.bronze)
    shutil.rmtree(lake.checkpoint("bronze"))
    event(database, seq=5)
    assert bronze.ingest(lake, source.options) == 5
    assert seqs(lake) == [1, 2, 3, 4, 5]


@PARQUET
@pytest.mark.parametrize("other", [False, True], ids=["a new checkpoint", "that of other files"])
def test_another_checkpoint(lake: Lake, source: Source, database: Database, tmp_path: Path, other: bool) -> None:
    event(database, seq=1)
    bronze.ingest(lake, source.options)
    Path(lake.checkpoint("bronze")).rename(lake.path("old"))
    if other:
        others = Lake(source.session, str(tmp_path / "other"), "parquet")
        bronze.ingest(others, source.options)
        shutil.copytree(others.checkpoint("bronze"), lake.checkpoint("bronze"))
    event(database, seq=2)
    with pytest.raises(InvalidOption, match="belong to another checkpoint"):
        bronze.ingest(lake, source.options)
    shutil.rmtree(lake.checkpoint("bronze"), ignore_errors=True)
    Path(lake.path("old")).rename(lake.checkpoint("bronze"))
    assert bronze.ingest(lake, source.options) == 1
    assert seqs(lake) == [1, 2]


@PARQUET
def test_conditions_on_rows_of_the_log_reach_the_files(lake: Lake, source: Source, database: Database) -> None:
    many(database, 100)
    many(database, 100, occurred_at=at(86_400))
    bronze.ingest(lake, source.options)
    read = bronze.read(lake).where("day >= '2030-01-02' and txid >= 5 and (txid > 5 or id > 7)")
    assert read.count() == 100
    told = plan(read.select("seq"))
    (scan,) = [line for line in told.splitlines() if "PartitionFilters" in line]
    assert " >= 2030-01-02)" in scan, told
    assert "GreaterThanOrEqual(txid,5)" in told
    # And columns that nobody asks for are not read.
    (schema,) = [line for line in told.splitlines() if "ReadSchema" in line]
    assert schema.strip() == "ReadSchema: struct<id:bigint,txid:bigint,seqs:array<bigint>>"


@PARQUET
def test_run_works_before_anything_was_claimed(lake: Lake, source: Source) -> None:
    assert pipeline.refine(lake) == 0
    empty = pipeline.silver(lake, "attempts")
    make("work")
    put(3)
    pipeline.run(lake, source.options)
    assert pipeline.silver(lake, "attempts").schema == empty.schema
    assert report.keep_figures(lake) == 1
    assert LakeFigure.objects.get().figures["enqueued"] == 3
    assert [row.level for row in lake.read(lake.gold("backlog")).collect()][-1] == 3


def test_progress_and_errors(lake: Lake, source: Source, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bronze, "PROGRESS", 0.01)
    many(database, 500)
    lines: list[str] = []
    assert bronze.ingest(lake, source.options, batch=100, tell=lines.append) == 500
    assert lines[0].startswith("bronze: ")
    assert lines[0].endswith(" events so far")
    with pytest.raises(bronze.PipelineFailed) as failed:
        bronze.ingest(lake, source.options, consumer="no such name")
    assert str(failed.value).startswith("Reading the lease log broke off: A consumer's name is 1 to 64 letters")
    assert "\n" not in str(failed.value)
    assert said(ValueError("one\ntwo")) == "one"


DAY = "2030-01-01"
OLD = at(-10 * 365 * 86_400)


class Crash(Exception):
    pass


def rows(lake: Lake, path: str, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in lake.read(path).select(*names).collect())


def test_from_jobs_to_the_report_by_the_command(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work()
    monkeypatch.setattr(lake.spark, "stop", lambda: None)  # the tests' session goes on
    out = StringIO()
    call_command("leasequeue_lake", "run", "--lake", lake.root, stdout=out)
    assert f"bronze (events): {JobEvent.objects.count()} in" in out.getvalue()
    assert f"gold (tables): {len(TABLES)} in" in out.getvalue()
    states = [state for (state,) in rows(lake, lake.silver("jobs"), "state")]
    assert sorted(states) == ["completed"] * 8 + ["dead", "open"]
    sums = lake.read(lake.gold("throughput")).groupBy().sum("enqueued", "completed", "failed").first()
    assert tuple(sums) == (10, 8, 1)
    assert rows(lake, lake.gold("poison"), "fingerprint", "error_type", "dead") == [("f1", "app.Boom", 1)]
    assert report.keep_figures(lake) == LakeFigure.objects.count() >= 1
    kept = LakeFigure.objects.first()
    assert kept.figures["completed"] == 8
    call_command("leasequeue_lake", "report", "--lake", lake.root, "--output", str(tmp_path / "r"), stdout=out)
    text = (tmp_path / "r" / "report.html").read_text()
    assert "<svg" in text
    assert "app.Boom" in text
    assert "http" not in text.replace("http://www.w3.org", "")  # nothing is loaded from anywhere
    assert (tmp_path / "r" / "nodes.csv").read_text().splitlines()[0].startswith('"node"')
    assert any(line.startswith("consumer lake: at") for line in lake_status())
    # Each table of gold has the key that the reference tells.
    page = Path(__file__).parents[2].joinpath("docs/reference/lake.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| `gold/(\w+)` \|[^|]*\|([^|]*)\|[^|]*\|$", page, re.MULTILINE)
    told = {name: re.findall(r"`(\w+)`", key) for name, key in lines}
    assert told.keys() == set(TABLES)
    for name, key in told.items():
        made = lake.read(lake.gold(name))
        assert dict(made.dtypes) == gold.columns(name), name
        assert made.select(key).distinct().count() == made.count() if key else made.count() == 1, name


def test_a_second_run_late_events_and_silver_of_other_versions(lake: Lake, source: Source, database: Database) -> None:
    work()
    pipeline.run(lake, source.options)
    tables = {name: rows(lake, lake.gold(name), "*") for name in ("throughput", "backlog", "nodes")}
    again = pipeline.run(lake, source.options)
    assert (again.events, again.days, again.tables) == (0, 0, [])
    # The same events once more, as from a restored database: other transactions, the same numbers.
    database.execute("SELECT pg_current_xact_id()")
    database.execute(
        "INSERT INTO leasequeue_leaseevent SELECT id, pg_current_xact_id()::text::bigint, occurred_at, queue_id, claim,"
        " deadline, low, high, kind, node, name, seqs, deliveries, waited, ran, detail FROM leasequeue_leaseevent"
    )
    assert pipeline.run(lake, source.options).days == 1
    assert {name: rows(lake, lake.gold(name), "*") for name in tables} == tables
    # The open job of a day that was computed before ends now.
    job = engine.run(engine.claim("work", "b", 1))[0]
    engine.run(engine.ack([job.seq], "b", tokens=[job.token]))
    pipeline.run(lake, source.options)
    assert max(rows(lake, lake.gold("backlog"), "hour", "level"))[1] == 0
    new = rows(lake, lake.silver("attempts"), "seq", "held")
    lake.write(lake.silver("attempts"), lake.read(lake.silver("attempts")).drop("held", "job_day"))
    lake.put_note("schema", {"silver": 1})
    assert pipeline.run(lake, source.options).days == 1
    assert rows(lake, lake.silver("attempts"), "seq", "held") == new
    assert pipeline.run(lake, source.options).days == 0
    lake.put_note("schema", {"silver": 99})
    with pytest.raises(InvalidOption, match=f"version 99, this package knows {layout.SILVER}"):
        pipeline.run(lake, source.options)


def test_a_job_is_in_silver_once_whatever_comes_late(lake: Lake, source: Source, database: Database) -> None:
    """Its enqueue may be read after its claim, and belong to the day before."""
    event(database, seq=1, kind=2, node="a", occurred_at=at(12 * 3_600 + 5), waited=0)
    event(database, seq=2, occurred_at=at(12 * 3_600 + 6))
    pipeline.ingest(lake, source.options)
    assert pipeline.refine(lake) == 1
    assert rows(lake, lake.silver("jobs"), "seq", "deliveries") == [(1, 1), (2, 0)]
    event(database, seq=1, occurred_at=at(12 * 3_600 - 1))
    event(database, seq=3, occurred_at=at(12 * 3_600 - 1))
    pipeline.ingest(lake, source.options)
    assert pipeline.refine(lake) == 2
    assert rows(lake, lake.silver("jobs"), "seq", "deliveries") == [(1, 1), (2, 0), (3, 0)]
    # A new event of one job leaves the others of its day as they are.
    event(database, seq=2, kind=10, occurred_at=at(36 * 3_600))
    pipeline.ingest(lake, source.options)
    assert pipeline.refine(lake) == 1
    assert rows(lake, lake.silver("jobs"), "seq", "state") == [(1, "open"), (2, "cancelled"), (3, "open")]


@pytest.mark.parametrize("lake", FORMATS, indirect=True)
def test_a_day_whose_only_job_belongs_to_another_is_empty(lake: Lake, source: Source, database: Database) -> None:
    event(database, seq=1, kind=2, node="a", occurred_at=at(12 * 3_600 + 5), waited=0)
    event(database, seq=2, kind=2, node="a", occurred_at=at(36 * 3_600 + 5), waited=0)
    event(database, seq=3, occurred_at=at(36 * 3_600 + 5))
    pipeline.run(lake, source.options)
    for seq in (1, 2):
        event(database, seq=seq, occurred_at=at(-1))
    pipeline.run(lake, source.options)
    assert rows(lake, lake.silver("jobs"), "seq", "job_day") == [(1, DAY), (2, DAY), (3, "2030-01-03")]
    assert rows(lake, lake.silver("attempts"), "seq", "job_day") == [(1, DAY), (2, DAY)]
    assert rows(lake, lake.gold("quality"), "violations") == [(0,)] * 9


@PARQUET
def test_a_run_killed_while_it_replaced_days(lake: Lake, source: Source, database: Database, monkeypatch: Any) -> None:
    for seq, hours in ((1, 0), (2, 1), (3, 24)):
        event(database, seq=seq, occurred_at=at(hours * 3_600))
    pipeline.ingest(lake, source.options)
    pipeline.refine(lake)
    event(database, seq=1, kind=10, occurred_at=at(25 * 3_600))
    pipeline.ingest(lake, source.options)

    def killed(name: str, value: dict[str, Any]) -> None:
        if name == "silver" and "writing" not in value:
            raise Crash
        Lake.put_note(lake, name, value)

    monkeypatch.setattr(lake, "put_note", killed)
    with pytest.raises(Crash):
        pipeline.refine(lake)
    monkeypatch.undo()
    # Spark replaces a day by taking the old one away first.
    shutil.rmtree(Path(lake.silver("jobs")) / "job_day=2030-01-01")
    assert pipeline.refine(lake) == 2
    assert rows(lake, lake.silver("jobs"), "seq", "state") == [(1, "cancelled"), (2, "open"), (3, "open")]
    assert pipeline.refine(lake) == 0


def test_a_run_killed_before_its_figures(lake: Lake, source: Source, database: Database, monkeypatch: Any) -> None:
    event(database, seq=1)
    pipeline.run(lake, source.options)
    event(database, seq=2)

    def killed(*_: object) -> list[str]:
        raise Crash

    monkeypatch.setattr(pipeline, "figure", killed)
    with pytest.raises(Crash):
        pipeline.run(lake, source.options)
    monkeypatch.undo()
    assert pipeline.run(lake, source.options).tables
    assert sum(n for (n,) in rows(lake, lake.gold("throughput"), "enqueued")) == 2
    assert pipeline.run(lake, source.options).tables == []


def test_jobs_that_wait_are_known_where_enqueueing_is_not_logged(lake: Lake, source: Source) -> None:
    make("work", log_enqueued=False)
    engine.run(engine.enqueue("work", [NewJob(data=n, name="t") for n in range(3)]))
    engine.run(engine.enqueue("work", [NewJob(data=3, name="t", delay_ms=3_600_000)]))
    pipeline.run(lake, source.options)
    assert max(rows(lake, lake.gold("backlog"), "hour", "level"))[1] == 4
    found = engine.run(engine.claim("work", "a", 3))
    engine.run(engine.ack([job.seq for job in found], "a", tokens=[job.token for job in found]))
    pipeline.run(lake, source.options)
    assert max(rows(lake, lake.gold("backlog"), "hour", "level"))[1] == 1
    assert sum(n for (n,) in rows(lake, lake.gold("throughput"), "enqueued")) == 4
    assert pipeline.run(lake, source.options).events == 0


def test_one_command_at_a_time(lake: Lake, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(lake.spark), "stop", lambda session: None)  # the tests' session goes on
    moved = Lake(lake.spark, str(tmp_path / "mount"))
    Path(moved.root).symlink_to(lake.root)
    elsewhere = Lake(lake.spark, str(tmp_path / "elsewhere"))
    with layout.only_run(lake, source.options, "lake"):
        with pytest.raises(layout.RunInProgress, match="Another run of the consumer 'lake'"):
            pipeline.run(elsewhere, source.options)
        for name, same in (("another", lake), ("a third", moved)):
            with pytest.raises(layout.RunInProgress, match="or a run of another consumer"):
                pipeline.run(same, source.options, consumer=name)
        for action in ("archive", "compact"):
            with pytest.raises(CommandError, match="Another command writes to the lake"):
                call_command("leasequeue_lake", action, "--lake", lake.root)
        with layout.only_run(elsewhere, source.options, "a fourth"):
            pass
    with layout.only_run(lake, source.options, "another"):
        pass


def closed_partition(database: Database) -> int:
    """Fill the first partition's end: everything below 500,000 is closed. Returns its number of events."""
    for number in range(20):
        row = {"low": number, "high": number + 100, "seqs": [number + 100, number], "node": f"n{number % 3}"}
        batch(database, id=1_000 + number, occurred_at=OLD, queue_id=1, kind=2, detail={"n": number}, **row)
    drawn(510_000)
    event(database, seq=99)
    return 40


def archived(lake: Lake) -> tuple[int, ...] | None:
    """Return the events in the files of the manifest, and how many are distinct."""
    manifest = duckdb.execute(f"SELECT file FROM read_json('{lake.root}/archive/manifest/*.json')").fetchall()
    files = [f"{lake.root}/{name}" for (name,) in manifest]
    return duckdb.execute("SELECT count(*), count(DISTINCT id) FROM read_parquet(?)", [files]).fetchone()


#: Functions of the archive that begin a step, and an argument by which a call of the step is known.
STEPS = {
    "plan": (archive.secrets, "token_hex", None), "write": (archive, "with_days", None),
    "verify": (archive.ConnectionExecutor, "fetch", "lake/slice_sums"), "publish": (archive, "publish", None),
}  # fmt: skip


@contextmanager
def before(step: str, act: Callable[[], None]) -> Iterator[None]:
    owner, name, word = STEPS[step]
    original = getattr(owner, name)

    def first(*args: Any, **options: Any) -> Any:
        if word is None or word in args:
            act()
        return original(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, first)
        yield


@pytest.mark.parametrize("step", STEPS)
def test_the_archive_survives_a_crash_before_a_step(lake: Lake, source: Source, database: Database, step: str) -> None:
    count = closed_partition(database)

    def crash() -> None:
        raise Crash

    with before(step, crash), pytest.raises(Crash):
        archive.archive(lake, source.options)
    archive.archive(lake, source.options)
    found = LakeSlice.objects.get()
    assert (found.state, found.rows, found.low, found.high) == ("verified", count, 0, 500_000)
    assert archived(lake) == (count, count)
    assert archive.archive(lake, source.options) == []


def test_retention_waits_for_the_archive(lake: Lake, source: Source, database: Database, settings: Any) -> None:
    settings.LEASEQUEUE = {"EVENT_RETENTION_DAYS": 1, "LAKE": {"ARCHIVE": True}}
    count = closed_partition(database)
    with connect("default") as connection:
        assert partitions.maintain(connection).held == {"leasequeue_leaseevent_p0": "lake archive"}
        archive.archive(lake, source.options)
        assert partitions.maintain(connection).dropped == ["leasequeue_leaseevent_p0"]
    assert archive.archive(lake, source.options) == []
    assert LakeSlice.objects.get().state == "pruned"
    assert archived(lake) == (count, count)
    put_back()


def test_files_that_differ_are_not_verified(lake: Lake, source: Source, database: Database) -> None:
    closed_partition(database)
    late = before("verify", lambda: event(database, id=5_000, seq=1))
    with late, pytest.raises(archive.ArchiveDiffers, match="40 rows"):
        archive.archive(lake, source.options)
    assert LakeSlice.objects.get().state == "planned"


def test_dead_letters_chosen_by_a_query_come_back_at_a_rate_once(lake: Lake, source: Source) -> None:
    make("work", max_deliveries=1, exhaust_at="release", dead_letter="self")
    engine.run(engine.enqueue("work", [NewJob(data={"n": n}, key=f"k{n}", meta={"m": "x"}) for n in range(4)]))
    for job in engine.run(engine.claim("work", "n", 4)):
        failure = engine.Failure("E", "boom", "", "bad" if job.data["n"] < 3 else "other")
        engine.run(engine.release([engine.Release(job.seq, job.token, failure=failure)], "n"))
    moved = []
    for _ in range(2):
        letters = sink.dead_letters(lake.spark, source.options).where("fingerprint = 'bad'")
        moved.append(sink.replay(letters, source.options, rate=0.01))
    assert moved == [3, 0]
    jobs = {job.key: job for job in LiveJob.objects.all()}
    assert len(jobs) == 4
    assert jobs["k3"].state == JobState.DEAD
    assert [jobs[f"k{n}"].state for n in range(3)].count(JobState.DELAYED) >= 2
    gap = jobs["k2"].available_at - jobs["k1"].available_at
    assert gap.total_seconds() == pytest.approx(100)
    assert jobs["k1"].meta["m"] == "x"
    assert jobs["k1"].meta["$replayed_from"] == "work"
    replayed = {event.seq: event.detail for event in JobEvent.objects.filter(kind=EventKind.REDRIVEN)}
    sources = LiveJob.objects.exclude(key="k3").values_list("source_seq", flat=True)
    assert replayed == {source: {"by": "spark"} for source in sources}


def test_the_command_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="--lake PATH"):
        call_command("leasequeue_lake", "run")
    out = StringIO()
    call_command("leasequeue_lake", "status", stdout=out)
    assert out.getvalue().startswith("horizon: transaction")
    with pytest.raises(CommandError, match="no consumer 'nobody'"):
        call_command("leasequeue_lake", "forget", "nobody")
