"""A lake belongs to one install: databases of a server, schemas of a database and restored copies are told apart."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import psycopg.sql
import pytest
from django.conf import settings
from pyspark.sql import SparkSession

from django_leasequeue.spark import layout
from django_leasequeue.spark.layout import Lake
from django_leasequeue.sql import statement
from tests.spark.conftest import Source
from tests.spark.helpers import Database
from tests.support.temporary_server import TemporaryServer

pytestmark = pytest.mark.django_db(transaction=True)


class Notes(Lake):
    """A lake whose notes are in memory: nothing here needs Spark."""

    def __init__(self, root: str) -> None:
        self.root, self.format, self.kept, self.notes = root, "delta", dict[str, Any](), None

    def all_notes(self) -> dict[str, dict[str, Any]]:
        return {name: dict(value) for name, value in self.kept.items()}

    def note_at(self, path: str) -> dict[str, Any]:
        return dict(self.kept.get(path.rsplit("/", 1)[1], {}))

    def put_note_at(self, path: str, value: dict[str, Any]) -> None:
        self.kept[path.rsplit("/", 1)[1]] = value


@pytest.fixture
def options(test_dsn: str) -> dict[str, str]:
    return {"dsn": test_dsn}


def use(lake: Lake, options: dict[str, str], **more: Any) -> None:
    with layout.only_run(lake, options, **more):
        pass


@pytest.mark.parametrize("other", [{"database": "shop"}, {"schema": "tenant_7"}, {"system": "4711"}])
def test_a_lake_of_another_install_is_refused_until_it_is_adopted(
    options: dict[str, str], other: dict[str, str]
) -> None:
    lake = Notes("/srv/lake")
    use(lake, options)
    mine = lake.kept["install"]
    assert set(mine) == {"system", "database", "schema"}
    lake.kept["install"] = mine | other
    ((name, value),) = other.items()
    with pytest.raises(layout.OtherInstall, match=rf"events of another install \(.*{name} {value}.* --adopt"):
        use(lake, options)
    assert lake.kept["install"] == mine | other
    use(lake, options, adopt=True)
    assert lake.kept["install"] == mine
    use(lake, options)


def test_a_restored_database_is_the_install_that_it_was(options: dict[str, str], database: Database) -> None:
    """Its history names the server of before; the old server, which goes on, is another one from then on."""
    lake = Notes("/srv/lake")
    use(lake, options)
    mine = lake.kept["install"]
    lake.kept["install"] = mine | {"system": "before"}
    row = {"system": "before"}
    database.execute(
        "INSERT INTO leasequeue_timeline (timeline, head, mark, sealed, horizon, noted_at, system)"
        " VALUES (77, 0, 0, 0, 0, now(), %(system)s)",
        row,
    )
    try:
        use(lake, options)
        assert lake.kept["install"] == mine
    finally:
        database.execute("DELETE FROM leasequeue_timeline WHERE system = %(system)s", row)
    # Where a role may not know the system, the names alone tell.
    lake.kept["install"] = mine | {"system": ""}
    use(lake, options)


def test_two_schemas_of_one_database(database: Database, options: dict[str, str]) -> None:
    """The schema is that of the tables that the search path finds, not its first."""
    with psycopg.connect(options["dsn"], autocommit=True) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS lake_other")
        try:
            connection.execute("SET search_path = lake_other, public")
            ask = lambda: connection.execute(statement("lake/install"), {"system": None}).fetchone()  # noqa: E731
            assert ask()[2] == "public"
            connection.execute("CREATE TABLE lake_other.leasequeue_leaseevent ()")
            assert ask()[2] == "lake_other"
        finally:
            connection.execute("DROP SCHEMA lake_other CASCADE")


@pytest.mark.slow
def test_it_stands_in_the_lake(spark: SparkSession, source: Source, options: dict[str, str], tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path / "lake"))
    use(lake, options)
    known = lake.note("install")
    assert known["database"] == psycopg.conninfo.conninfo_to_dict(options["dsn"])["dbname"]
    lake.put_note("install", known | {"database": "shop"})
    with pytest.raises(layout.OtherInstall):
        use(Lake(spark, lake.root), options)


#: One process: it looks for notes, says so, and begins the lake once it is told that the other one has looked as well.
BEGIN = """
import sys
from django_leasequeue import spark
from django_leasequeue.spark import layout

class Slow(layout.Lake):
    waits = True

    def all_notes(self):
        found = super().all_notes()
        if self.waits:
            self.waits = False
            print("looked", flush=True)
            sys.stdin.readline()
        return found

root, format, dsn = sys.argv[1:]
session = spark.session("begin", master="local[1]", memory="512m", niceness=0)
try:
    with layout.only_run(Slow(session, root, format), {"dsn": dsn}):
        print("began")
except layout.OtherInstall:
    print("refused")
"""


@pytest.mark.slow  # two JVMs
def test_of_two_installs_that_begin_a_lake_at_once_at_most_one_has_it(
    migrated_server: TemporaryServer, tmp_path: Path
) -> None:
    """Both look before either has written anything: no more than one goes on, and adopting settles it."""
    mine = psycopg.conninfo.make_conninfo(migrated_server.url())
    service, another = (psycopg.conninfo.make_conninfo(mine, dbname=name) for name in ("postgres", "another"))
    with psycopg.connect(service, autocommit=True) as connection:
        template = psycopg.sql.Identifier(str(psycopg.conninfo.conninfo_to_dict(mine)["dbname"]))
        connection.execute(psycopg.sql.SQL("CREATE DATABASE another TEMPLATE {}").format(template))
    command = [sys.executable, "-c", BEGIN, str(tmp_path / "lake"), "parquet"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        both = []
        for dsn in (mine, another):
            process = stack.enter_context(subprocess.Popen([*command, dsn], cwd=settings.BASE_DIR, **pipes))
            stack.callback(process.kill)
            both.append(process)
        assert [process.stdout.readline() for process in both] == ["looked\n"] * 2
        for process in both:
            process.stdin.write("go on\n")
            process.stdin.flush()
        said = [process.communicate()[0].strip() for process in both]
    assert said.count("refused") >= 1, said
    assert set(said) <= {"began", "refused"}
    notes = {path.name: next(path.glob("part-*")).read_text() for path in (tmp_path / "lake/_notes").iterdir()}
    owners = {json.loads(note)["database"] for name, note in notes.items() if name == "install"}
    assert len(owners) == said.count("began")


def test_a_claim_of_another_install_is_respected_until_this_one_adopts_the_lake(options: dict[str, str]) -> None:
    lake = Notes("/srv/lake")
    claim = {"system": "4711", "database": "shop", "schema": "public"}
    lake.kept["claim-1"] = claim
    with pytest.raises(layout.OtherInstall, match="database shop, schema public, system 4711"):
        use(lake, options)
    assert "install" not in lake.kept
    use(lake, options, adopt=True)
    assert lake.kept["install"] != claim
    use(lake, options)
