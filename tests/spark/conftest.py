"""One small Spark session for all tests of the lake; without pyspark they are skipped."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from django.conf import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from django_leasequeue.spark.layout import Lake

from django_leasequeue import spark as lakes
from tests.spark.helpers import Database, place, words

#: Little: other suites run beside this one, and would leave a Spark that steps far back nothing.
NICENESS = 1

if not all(importlib.util.find_spec(name) for name in ("duckdb", "hatchling", "pyarrow", "pyspark")):
    # The extra `spark` is not installed (it is large), or not what the tests want beside it: `make test` goes without,
    # .ci/run installs all of it.
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.path).parents:
            item.add_marker(pytest.mark.spark)
            # pyspark, pandas and the JVM's sockets warn about themselves.
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, test_database_url: str) -> Iterator[SparkSession]:
    """A session on one core with the smallest heap that works; a failed task is tried a second time."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(settings.BASE_DIR), os.environ.get("PYTHONPATH")]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = lakes.session(
            "tests", master="local[2,3]", memory="512m", niceness=NICENESS,
            conf={
                "spark.sql.shuffle.partitions": "1", "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Dderby.system.home=/nonexistent",
            },
        )  # fmt: skip
    yield session
    session.stop()


@pytest.fixture
def database(test_dsn: str) -> Iterator[Database]:
    """A connection beside Django's, committing at once, to the empty test database."""
    with psycopg.connect(test_dsn, autocommit=True) as connection:
        # What an earlier test let retention drop was of other events, and so was what was deleted between the tests.
        connection.execute("COMMENT ON TABLE leasequeue_leaseevent IS NULL")
        connection.execute(
            "SELECT pg_stat_reset_single_table_counters(relid) FROM pg_partition_tree('leasequeue_leaseevent')"
        )
        yield connection


def plan(frame: DataFrame) -> str:
    with redirect_stdout(StringIO()) as told:
        frame.explain("formatted")
    return told.getvalue()


class Source:
    """Short words for reading the test database through Spark."""

    def __init__(self, session: SparkSession, dsn: str) -> None:
        self.session, self.options = session, place(dsn)

    def reader(self, table: str, **options: object) -> DataFrameReader:
        return self.session.read.format("leasequeue").options(**self.options, table=table, **words(options))

    def read(self, table: str = "events", schema: str | None = None, **options: object) -> DataFrame:
        reader = self.reader(table, **options)
        return (reader.schema(schema) if schema else reader).load()


@pytest.fixture
def lake(request: pytest.FixtureRequest, source: Source, tmp_path: Path) -> Lake:
    """A lake to be, in the format of the parameter or the module: else in that of what is installed."""
    from django_leasequeue.spark.layout import Lake

    format = getattr(request, "param", getattr(request.module, "FORMAT", None))
    if format == "delta":
        pytest.importorskip("deltalake")
    return Lake(source.session, str(tmp_path / "lake"), format)


@pytest.fixture
def source(spark: SparkSession, test_dsn: str) -> Source:
    return Source(spark, test_dsn)
