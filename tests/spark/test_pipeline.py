"""The pipeline from real jobs to the report; late and repeated events, second runs, the archive, replays."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from django.core.management import CommandError, call_command

from django_leasequeue import engine
from django_leasequeue.engine import NewJob, partitions
from django_leasequeue.engine.pool import connect
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import EventKind, JobEvent, JobState, LakeFigure, LakeSlice, LiveJob
from django_leasequeue.spark import archive, layout, pipeline, replay, report, retention
from django_leasequeue.spark.layout import FORMATS, TABLES, Lake
from tests.engine.helpers import make
from tests.spark.conftest import Source
from tests.spark.helpers import at, batch, event, work

pytestmark = pytest.mark.django_db(transaction=True)

DAY = "2030-01-01"
OLD = at(-10 * 365 * 86_400)


class Crash(Exception):
    pass


@pytest.fixture
def lake(source: Source, tmp_path: Path) -> Lake:
    return Lake(source.session, str(tmp_path / "lake"))


def rows(lake: Lake, path: str, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in lake.read(path).select(*names).collect())


def test_from_jobs_to_the_report(lake: Lake, source: Source, tmp_path: Path) -> None:
    work()
    ran = pipeline.run(lake, source.options)

    assert ran.events == JobEvent.objects.count()
    states = [state for (state,) in rows(lake, lake.silver("jobs"), "state")]
    assert sorted(states) == ["completed"] * 8 + ["dead", "open"]
    gold = lake.read(lake.gold("throughput")).groupBy().sum("enqueued", "completed", "failed").first()
    assert tuple(gold) == (10, 8, 1)
    assert rows(lake, lake.gold("poison"), "fingerprint", "error_type", "dead") == [("f1", "app.Boom", 1)]

    assert report.keep_figures(lake) == LakeFigure.objects.count() >= 1
    kept = LakeFigure.objects.first()
    assert kept.figures["completed"] == 8
    page = report.write(*report.in_directory(lake.root), tmp_path / "report")
    text = page.read_text()
    assert "<svg" in text
    assert "app.Boom" in text
    assert "http" not in text.replace("http://www.w3.org", "")  # nothing is loaded from anywhere
    assert (tmp_path / "report" / "nodes.csv").read_text().splitlines()[0].startswith('"node"')
    assert any(line.startswith("consumer lake: at") for line in retention.status())


def test_a_second_run_and_repeated_and_late_events(
    lake: Lake, source: Source, database: psycopg.Connection[Any]
) -> None:
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
    assert [level for (level,) in rows(lake, lake.gold("backlog"), "level")][-1] == 0


def test_a_job_is_in_silver_once_whatever_comes_late(
    lake: Lake, source: Source, database: psycopg.Connection[Any]
) -> None:
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


@pytest.mark.parametrize("format_", FORMATS)
def test_a_day_whose_only_job_belongs_to_another_is_empty(
    lake: Lake, source: Source, database: psycopg.Connection[Any], format_: str
) -> None:
    if format_ == "delta":
        pytest.importorskip("deltalake")
    lake = Lake(lake.spark, lake.root, format_)
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


def test_a_run_killed_while_it_replaced_days_leaves_nothing_out(
    lake: Lake, source: Source, database: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(lake.spark, lake.root, "parquet")
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


def test_a_run_killed_before_its_figures_is_made_good_by_the_next(
    lake: Lake, source: Source, database: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_silver_of_an_older_version_is_written_anew_and_of_a_newer_one_refused(lake: Lake, source: Source) -> None:
    work()
    pipeline.run(lake, source.options)
    new = rows(lake, lake.silver("attempts"), "seq", "held")
    lake.write(lake.silver("attempts"), lake.read(lake.silver("attempts")).drop("held", "job_day"))
    lake.put_note("schema", {"silver": 1})
    assert pipeline.run(lake, source.options).days == 1
    assert rows(lake, lake.silver("attempts"), "seq", "held") == new
    assert pipeline.run(lake, source.options).days == 0
    lake.put_note("schema", {"silver": 99})
    with pytest.raises(InvalidOption, match=f"version 99, this package knows {layout.SILVER}"):
        pipeline.run(lake, source.options)


def test_one_command_writes_at_a_time(
    lake: Lake, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def closed_partition(database: psycopg.Connection[Any]) -> int:
    """Fill the first partition's end: everything below 500,000 is closed. Returns its number of events."""
    for number in range(20):
        row = {"low": number, "high": number + 100, "seqs": [number + 100, number], "node": f"n{number % 3}"}
        batch(database, id=1_000 + number, occurred_at=OLD, queue_id=1, kind=2, detail={"n": number}, **row)
    database.execute("SELECT setval(pg_get_serial_sequence('leasequeue_leaseevent', 'id'), 510000)")
    event(database, seq=99)
    return 40


@pytest.mark.parametrize("step", ["plan", "write", "verify", "publish"])
def test_the_archive_survives_a_crash_before_each_step(
    lake: Lake, source: Source, database: psycopg.Connection[Any], step: str
) -> None:
    count = closed_partition(database)

    def crash(name: str) -> None:
        if name == step:
            raise Crash

    with pytest.raises(Crash):
        archive.archive(lake, source.options, crash=crash)
    archive.archive(lake, source.options)

    found = LakeSlice.objects.get()
    assert (found.state, found.rows, found.low, found.high) == ("verified", count, 0, 500_000)
    manifest = duckdb.execute(f"SELECT file FROM read_json('{lake.root}/archive/manifest/*.json')").fetchall()
    files = [f"{lake.root}/{name}" for (name,) in manifest]
    counted = duckdb.execute("SELECT count(*), count(DISTINCT id) FROM read_parquet(?)", [files]).fetchone()
    assert counted == (count, count)
    assert archive.read(lake).count() == count
    assert archive.archive(lake, source.options) == []


def test_retention_waits_for_the_archive_and_a_verified_slice_is_never_rewritten(
    lake: Lake, source: Source, database: psycopg.Connection[Any], settings: Any
) -> None:
    settings.LEASEQUEUE = {"EVENT_RETENTION_DAYS": 1, "LAKE": {"ARCHIVE": True}}
    count = closed_partition(database)
    connection = connect("default")
    try:
        assert partitions.maintain(connection).held == {"leasequeue_leaseevent_p0": "lake archive"}
        archive.archive(lake, source.options)
        assert partitions.maintain(connection).dropped == ["leasequeue_leaseevent_p0"]
    finally:
        connection.close()
    assert archive.archive(lake, source.options) == []

    assert LakeSlice.objects.get().state == "pruned"
    assert archive.read(lake).count() == count
    database.execute(
        "CREATE TABLE leasequeue_leaseevent_p0 PARTITION OF leasequeue_leaseevent FOR VALUES FROM (0) TO (500000)"
        " WITH (toast_tuple_target = 8160)"
    )


def test_files_that_differ_are_not_verified(lake: Lake, source: Source, database: psycopg.Connection[Any]) -> None:
    closed_partition(database)

    def lose(step: str) -> None:
        if step == "verify":
            event(database, id=5_000, seq=1)

    with pytest.raises(archive.ArchiveDiffers, match="40 rows"):
        archive.archive(lake, source.options, crash=lose)
    assert LakeSlice.objects.get().state == "planned"


def test_dead_letters_chosen_by_a_query_come_back_at_a_rate_once(lake: Lake, source: Source) -> None:
    make("work", max_deliveries=1, exhaust_at="release", dead_letter="self")
    engine.run(engine.enqueue("work", [NewJob(data={"n": n}, key=f"k{n}", meta={"m": "x"}) for n in range(4)]))
    for job in engine.run(engine.claim("work", "n", 4)):
        failure = engine.Failure("E", "boom", "", "bad" if job.data["n"] < 3 else "other")
        engine.run(engine.release([engine.Release(job.seq, job.token, failure=failure)], "n"))

    moved = []
    for _ in range(2):
        letters = replay.dead_letters(lake.spark, source.options).where("fingerprint = 'bad'")
        moved.append(replay.replay(letters, source.options, rate=0.01))
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


def test_the_command_runs_the_pipeline(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    work()
    keep: Callable[[], None] = lambda: None  # noqa: E731
    monkeypatch.setattr(spark, "stop", keep)  # the tests' session goes on
    out = StringIO()
    call_command("leasequeue_lake", "run", "--lake", lake.root, stdout=out)
    assert f"gold (tables): {len(TABLES)} in" in out.getvalue()
    call_command("leasequeue_lake", "report", "--lake", lake.root, "--output", str(tmp_path / "r"), stdout=out)
    assert (tmp_path / "r" / "report.html").exists()
    page = Path(__file__).parents[2].joinpath("docs/reference/lake.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| `gold/(\w+)` \|.*\|(.*)\|$", page, re.MULTILINE)
    told = {name: re.findall(r"`(\w+)`", key) for name, key in lines}
    assert told.keys() == set(TABLES)
    for name, key in told.items():
        rows = lake.read(lake.gold(name))
        assert rows.select(key).distinct().count() == rows.count() if key else rows.count() == 1, name
