"""Where psycopg has not the undocumented names that the exchange uses, all goes by cursors, and it is said."""

import json
import logging
from ctypes.util import find_library
from typing import Any

import psycopg
import pytest

from django_leasequeue.checks import settings as checks
from django_leasequeue.engine import exchange
from tests.engine.helpers import own_connection
from tests.engine.story import check, tell
from tests.support.environment import python


def test_the_installed_psycopg_fits() -> None:
    """Where it is newer than ``NEWEST``: run ``.ci/run`` with the bound raised, then keep it."""
    assert exchange.misfit() is None


@pytest.mark.parametrize(
    ("version", "fits"), [("3.2", True), ("3.3.99", True), ("3.3rc1", True), ("3.4.0.dev1", False), ("4.0", False)]
)
def test_a_version_that_was_not_tested_is_not_used(version: str, fits: bool) -> None:
    reason = exchange.misfit(version)
    assert reason == (None if fits else f"psycopg {version} is newer than 3.3, the newest that was tested")


class Renamed:
    def __init__(self, context: Any) -> None: ...


class Rearranged(Renamed):
    def set_pgresult(self, result: Any) -> None: ...
    def load_rows(self, row0: int, row1: int) -> list[Any]:
        return []


def of_no_arguments(*, pgconn: Any) -> None: ...


@pytest.mark.parametrize(
    ("name", "other", "says"),
    [
        ("Transformer", Renamed, "no attribute 'set_pgresult'"),
        ("Transformer", Rearranged, "load_rows() takes 3 positional arguments but 4 were given"),
        ("fetch_many", of_no_arguments, "of_no_arguments() takes 0 positional arguments"),
        ("error_from_result", lambda result: None, "error_from_result() returns no error"),
        ("_NOT_IN_PSYCOPG", "cannot import name 'execute'", "cannot import name 'execute'"),
    ],
)
def test_a_name_of_another_signature_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, other: object, says: str
) -> None:
    monkeypatch.setattr(exchange, name, other)
    assert says in str(exchange.misfit())


@pytest.mark.parametrize("kind", [psycopg.Connection, psycopg.AsyncConnection])
def test_a_connection_that_waits_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    monkeypatch.setattr(kind, "wait", of_no_arguments)
    assert "too many positional arguments" in str(exchange.misfit())
    monkeypatch.delattr(kind, "wait")
    assert "has no attribute 'wait'" in str(exchange.misfit())


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A psycopg that nobody has tested."""
    monkeypatch.setattr(exchange, "NEWEST", (3, 0))
    exchange.fits.cache_clear()
    yield
    exchange.fits.cache_clear()


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(not exchange.ENABLED, reason="LEASEQUEUE_EXCHANGE=off")
def test_all_goes_by_cursors_and_one_line_says_so(newer: None, caplog: pytest.LogCaptureFixture) -> None:
    with own_connection() as executor, caplog.at_level(logging.INFO, exchange.__name__):
        check(tell(executor.run))
        assert executor.connection.execute("SELECT name FROM pg_prepared_statements").fetchall() == []
    (record,) = caplog.records
    assert record.getMessage().startswith("Statements go by psycopg's cursors, which takes more CPU: psycopg 3.")


def test_a_system_check_says_so(newer: None) -> None:
    (message,) = checks.check_installation(None)
    assert message.id == "leasequeue.W031"
    assert "newer than 3.0, the newest that was tested" in message.msg


has_libpq = pytest.mark.skipif(not find_library("pq"), reason="psycopg in pure Python takes the system's libpq")


@pytest.mark.slow  # a process each
@pytest.mark.sample
@pytest.mark.parametrize(
    ("environment", "absent", "impl", "prepares"),
    [
        pytest.param({"PSYCOPG_IMPL": "python"}, [], "python", True, id="in pure Python", marks=has_libpq),
        pytest.param({"LEASEQUEUE_EXCHANGE": "off"}, [], None, False, id="exchange off"),
        pytest.param({}, ["fetch_many"], None, False, id="a name missing"),
    ],
)
def test_leg(
    subprocess_env: dict[str, str], environment: dict[str, str], absent: list[str], impl: str | None, prepares: bool
) -> None:
    done = python("-m", "tests.engine.psycopg_leg", *absent, env=subprocess_env | environment)
    assert done.returncode == 0, done.stderr
    used, prepared = json.loads(done.stdout)
    assert used == (impl or psycopg.pq.__impl__)
    assert (prepared > 0) is prepares
