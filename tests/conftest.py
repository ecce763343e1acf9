"""Database plumbing for the whole suite.

Every run has a database of its own, so any number of runs go on at once and none touches a running demo:

* without ``DATABASE_URL`` a PostgreSQL server of its own, started when the first test asks for the database;
* with it a database ``test_<name>_<random>`` on that server.
"""

import inspect
import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from django.test import TransactionTestCase, override_settings
from django.test.utils import setup_databases, teardown_databases
from hypothesis import settings as hypothesis_settings
from pytest_django import DjangoDbBlocker

from django_leasequeue.devdb import url_from_database
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.engine.pool import close_pools
from django_leasequeue.engine.queues import routing
from tests import matrix
from tests.support.databases import OwnDatabase, close_emptying, database_alias, empty_tables
from tests.support.environment import child_environment
from tests.support.temporary_server import TemporaryServer

# How long an example takes says something about the machine, not about what it shows.
hypothesis_settings.register_profile("untimed", deadline=None)
hypothesis_settings.load_profile("untimed")
# What a shell starts in the background ignores Ctrl-C, and so do its children: tests stop programs by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

HOME = Path(settings.BASE_DIR) / ".leasequeue"


def pytest_report_header() -> str:
    own = "a PostgreSQL of its own" if settings.DATABASE_URL is None else "on the server that DATABASE_URL names"
    return f"database: {own}"


_slow_left_out = pytest.StashKey[int]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).with_suffix("").as_posix() in matrix.MODULES:
            item.add_marker("matrix")


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        stash = item.config.stash
        stash[_slow_left_out] = stash.get(_slow_left_out, 0) + ("slow" in item.keywords)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the figure of a process of xdist: all of them leave out the same tests."""
    node.config.stash[_slow_left_out] = getattr(node, "workeroutput", {}).get("slow_left_out", 0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["slow_left_out"] = session.config.stash.get(_slow_left_out, 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left_out := config.stash.get(_slow_left_out, 0):
        terminalreporter.write_line(f"{left_out} slow tests were left out: `make test-all` runs them as well.")


@pytest.fixture
def clock() -> Iterator[engine_clock.Clock]:
    """The engine's clock, held at a round time; ``clock.advance(seconds=...)`` moves it."""
    with engine_clock.hold(engine_clock.Clock(datetime(2030, 1, 1, 12, tzinfo=UTC))) as held:
        yield held


@pytest.fixture
def native(request: pytest.FixtureRequest, settings: Any) -> None:
    """Async calls on connections of their own, as outside of tests."""
    settings.LEASEQUEUE = {"ASYNC": "native"}
    if inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("closed_pools")


@pytest.fixture
async def closed_pools() -> AsyncIterator[None]:
    """The event loop's connections do not outlive the test."""
    yield
    await close_pools()


@pytest.fixture(scope="session", autouse=True)
def _children_find_no_other_database() -> Iterator[None]:
    """Point child processes at nothing until there is a test database: none ever opens the demo's or a real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_URL", "postgresql:///use_the_fixture_subprocess_env?host=/nonexistent")
        yield


@pytest.fixture(scope="session")
def database_server() -> Iterator[TemporaryServer | None]:
    """The migrated PostgreSQL server of this process, or None when ``DATABASE_URL`` names one that others use."""
    if settings.DATABASE_URL is not None:
        yield None
        return
    with TemporaryServer(HOME, migrated=True) as server:
        with server.connect() as connection:
            connection.autocommit = True
            # A test reads the log right after it wrote: a transaction of autovacuum would hold the log's end back.
            connection.execute("ALTER SYSTEM SET autovacuum = off")
            connection.execute("SELECT pg_reload_conf()")
        yield server


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None,
    django_db_blocker: DjangoDbBlocker,
    _children_find_no_other_database: None,
    database_server: TemporaryServer | None,
) -> Iterator[None]:
    """The migrated test database: in place of pytest-django's, which migrates once for each process."""
    # One dictionary for the settings, the handler and the connections.
    database = connections.settings["default"]
    if database_server is not None:
        database.update(database_server.django_database())
        os.environ["DATABASE_URL"] = database_server.url()
        yield
        close_emptying()
        connections.close_all()
        return
    with OwnDatabase(database) as own, django_db_blocker.unblock():
        database["TEST"]["NAME"] = own.name
        os.environ["DATABASE_URL"] = url_from_database({**database, "NAME": own.name})
        made = setup_databases(verbosity=0, interactive=False, aliases={"default"})
        with django_db_blocker.block():
            yield
        close_emptying()
        teardown_databases(made, verbosity=0)


@pytest.fixture(scope="session", autouse=True)
def _tables_are_emptied() -> Iterator[None]:
    """Empty the tables after a test with transactions of its own by what is quick for few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda case: empty_tables("default"))
        # The next test finds the connection warm.
        patch.setattr(TransactionTestCase, "_should_reload_connections", lambda case: False)
        yield


@pytest.fixture(scope="session")
def test_database_url(django_db_setup: None) -> str:
    """The URL of the migrated test database."""
    return url_from_database(connections["default"].settings_dict)


@pytest.fixture
def test_dsn(transactional_db: None, test_database_url: str) -> str:
    """A libpq connection string of the test database, for real connections beside Django's.

    They do not see what Django's connection has not committed, so the test runs without the transaction that would undo
    it; the tables are emptied afterwards.
    """
    return test_database_url


@pytest.fixture
def subprocess_env(transactional_db: None, test_database_url: str) -> dict[str, str]:
    """The environment for child processes: this one's, with ``DATABASE_URL`` naming the test database."""
    return child_environment(test_database_url)


@pytest.fixture
def private_server() -> Iterator[TemporaryServer]:
    """A PostgreSQL server for one test alone, for tests that stop, kill or reconfigure it. Its database is empty."""
    with TemporaryServer(HOME) as server:
        yield server


@pytest.fixture
def migrated_server() -> Iterator[TemporaryServer]:
    """A PostgreSQL server for one test alone, its database migrated."""
    with TemporaryServer(HOME, migrated=True) as server:
        yield server


@pytest.fixture(scope="module")
def far_server() -> Iterator[TemporaryServer]:
    """A second server, its database migrated."""
    with TemporaryServer(HOME, migrated=True) as server:
        yield server


@pytest.fixture
def far(
    django_db_setup: None,
    far_server: TemporaryServer,
    monkeypatch: pytest.MonkeyPatch,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[str]:
    """The alias of a second database of queues, beside ``default``."""
    spread = {"DATABASES": ["default", "far"], "API": {"ACCESS": "open"}}
    entry = {**settings.DATABASES["default"], **far_server.django_database()}
    monkeypatch.setitem(settings.DATABASES, "far", entry)
    with database_alias("far", entry), django_db_blocker.unblock(), override_settings(LEASEQUEUE=spread):
        routing.routes().forget()
        routing.routes()._known = {}
        try:
            yield "far"
        finally:
            for alias in ("default", "far"):
                empty_tables(alias)
