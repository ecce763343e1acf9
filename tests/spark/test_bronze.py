"""Bronze: a checkpoint and the files that it wrote belong together; nothing is lost when one of them is new."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import LakeFigure
from django_leasequeue.spark import bronze, pipeline, report
from django_leasequeue.spark.layout import Lake
from django_leasequeue.spark.session import said
from tests.engine.helpers import make
from tests.spark.conftest import Source, plan
from tests.spark.helpers import at, event, many

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lake(source: Source, tmp_path: Path) -> Lake:
    return Lake(source.session, str(tmp_path / "lake"), "parquet")


def seqs(lake: Lake) -> list[int]:
    return sorted(row.seq for row in bronze.read(lake).select("seq").distinct().collect())


@pytest.mark.parametrize(("format", "log"), [("parquet", "events/_spark_metadata"), ("delta", "log/_delta_log")])
def test_without_the_list_of_its_files_nothing_is_written(
    source: Source, tmp_path: Path, database: psycopg.Connection[Any], format: str, log: str
) -> None:
    if format == "delta":
        pytest.importorskip("deltalake")
    lake = Lake(source.session, str(tmp_path / "lake"), format)
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


@pytest.mark.parametrize("other", [False, True], ids=["a new checkpoint", "that of other files"])
def test_files_of_another_checkpoint_are_refused(
    lake: Lake, source: Source, database: psycopg.Connection[Any], tmp_path: Path, other: bool
) -> None:
    """Spark's sink would pass over what it believes it has."""
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


def test_conditions_on_rows_of_the_log_reach_the_files(
    lake: Lake, source: Source, database: psycopg.Connection[Any]
) -> None:
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


def test_run_works_before_anything_was_claimed(lake: Lake, source: Source) -> None:
    assert pipeline.refine(lake) == 0
    empty = pipeline.silver(lake, "attempts")
    make("work")
    engine.run(engine.enqueue("work", [NewJob(data=n) for n in range(3)]))
    pipeline.run(lake, source.options)
    assert pipeline.silver(lake, "attempts").schema == empty.schema
    assert report.keep_figures(lake) == 1
    assert LakeFigure.objects.get().figures["enqueued"] == 3
    assert [row.level for row in lake.read(lake.gold("backlog")).collect()][-1] == 3


def test_progress_is_told_while_events_are_read(
    lake: Lake, source: Source, database: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bronze, "PROGRESS", 0.01)
    many(database, 500)
    lines: list[str] = []
    assert bronze.ingest(lake, source.options, batch=100, tell=lines.append) == 500
    assert lines[0].startswith("bronze: ")
    assert lines[0].endswith(" events so far")


def test_an_error_is_one_sentence(lake: Lake, source: Source) -> None:
    with pytest.raises(bronze.PipelineFailed) as failed:
        bronze.ingest(lake, source.options, consumer="no such name")
    assert str(failed.value).startswith("Reading the lease log broke off: A consumer's name is 1 to 64 letters")
    assert "\n" not in str(failed.value)
    assert said(ValueError("one\ntwo")) == "one"
