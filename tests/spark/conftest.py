"""One small Spark session for all tests of the lake; without pyspark they are skipped."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.conf import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from django_leasequeue import spark as lake

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
        session = lake.session(
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
def database(test_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection beside Django's, committing at once, to the empty test database."""
    with psycopg.connect(test_dsn, autocommit=True) as connection:
        # What an earlier test let retention drop was of other events, and so was what was deleted between the tests.
        connection.execute("COMMENT ON TABLE leasequeue_leaseevent IS NULL")
        connection.execute(
            "SELECT pg_stat_reset_single_table_counters(relid) FROM pg_partition_tree('leasequeue_leaseevent')"
        )
        yield connection


def plan(frame: DataFrame) -> str:
    """Return what ``explain`` says of a DataFrame."""
    with redirect_stdout(StringIO()) as told:
        frame.explain("formatted")
    return told.getvalue()


class Source:
    """Short words for reading the test database through Spark."""

    def __init__(self, session: SparkSession, dsn: str) -> None:
        self.session = session
        self.options = {
            name: value for name, value in psycopg.conninfo.conninfo_to_dict(dsn).items() if isinstance(value, str)
        }

    def reader(self, table: str, **options: object) -> DataFrameReader:
        words = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
        return self.session.read.format("leasequeue").options(**self.options, table=table, **words)

    def read(self, table: str = "events", schema: str | None = None, **options: object) -> DataFrame:
        reader = self.reader(table, **options)
        return (reader.schema(schema) if schema else reader).load()


@pytest.fixture
def source(spark: SparkSession, test_dsn: str) -> Source:
    """The data source on the test database."""
    return Source(spark, test_dsn)
