"""Commands without what they need, tables or an extra, say in one line what to do."""

import os
import subprocess
import sys

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import ProgrammingError

from django_leasequeue.engine.outage import advice
from tests.support.environment import child_environment
from tests.support.temporary_server import TemporaryServer


@pytest.mark.slow
def test_before_migrate(private_server: TemporaryServer) -> None:
    environment = {**os.environ, **child_environment(private_server.url())}
    for words in (
        "runworker --burst", "runreaper --once", "leasequeue_status", "leasequeue_queues list",
        "leasequeue_limits list", "leasequeue_dlq list",
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "django", *words.split()],
            env=environment, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 1, words
        (line,) = done.stderr.splitlines()
        assert line.startswith("CommandError: The tables are missing or old: run migrate (relation "), words


def test_a_pooler_in_transaction_mode() -> None:
    error = ProgrammingError("it failed")
    error.__cause__ = psycopg.errors.InvalidSqlStatementName('prepared statement "_pg3_0" does not exist')
    assert "DISABLE_SERVER_SIDE_CURSORS" in str(advice(error))
    assert "\n" not in str(advice(error))


def test_old_tables_and_other_errors() -> None:
    assert "missing or old" in str(advice(psycopg.errors.UndefinedColumn("column j.new does not exist")))
    assert advice(psycopg.errors.DeadlockDetected()) is None
    assert advice(ValueError()) is None


@pytest.mark.django_db
@pytest.mark.parametrize("action", ["run", "archive", "replay", "compact", "report"])
def test_without_pyspark_the_lake_says_what_to_install(monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    for name in ("pyspark", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CommandError, match=r'pip install "django-leasequeue\[spark\]"'):
        call_command("leasequeue_lake", action, "--lake", "unused", *(["--days", "1"] if action == "report" else []))
