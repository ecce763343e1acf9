"""Database plumbing for the whole suite.

Every run has a database of its own, so any number of runs go on at once and none touches a running demo:

* without ``DATABASE_URL`` a PostgreSQL server of its own, started when the first test asks for the database;
* with it a database ``test_<name>_<random>`` on that server.
"""

import inspect
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from hypothesis import settings as hypothesis_settings

from django_leasequeue.devdb import url_from_database
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.engine.pool import close_pools
from tests.support.databases import OwnDatabase
from tests.support.temporary_server import TemporaryServer

# How long an example takes says something about the machine, not about what it shows.
hypothesis_settings.register_profile("untimed", deadline=None)
hypothesis_settings.load_profile("untimed")

HOME = Path(settings.BASE_DIR) / ".leasequeue"


def pytest_report_header() -> str:
    own = "a PostgreSQL of its own" if settings.DATABASE_URL is None else "on the server that DATABASE_URL names"
    return f"database: {own}"


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
    """The PostgreSQL server of this run, or None when ``DATABASE_URL`` names one that others use as well."""
    if settings.DATABASE_URL is not None:
        yield None
        return
    with TemporaryServer(HOME) as server:
        yield server


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    _children_find_no_other_database: None,
    database_server: TemporaryServer | None,
) -> Iterator[None]:
    # One dictionary for the settings, the handler and the connections; pytest-django makes the test database from it.
    database = connections.settings["default"]
    if database_server is not None:
        database.update(database_server.django_database())
        database["TEST"]["NAME"] = f"test_{database['NAME']}"
        os.environ["DATABASE_URL"] = url_from_database({**database, "NAME": database["TEST"]["NAME"]})
        yield
        return
    with OwnDatabase(database) as own:
        database["TEST"]["NAME"] = own.name
        os.environ["DATABASE_URL"] = url_from_database({**database, "NAME": own.name})
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
def private_env(private_server: TemporaryServer) -> dict[str, str]:
    """The environment for child processes that work on the migrated database of :func:`private_server`."""
    environment = child_environment(private_server.url())
    migrate = [sys.executable, "-m", "django", "migrate", "--verbosity=0"]
    subprocess.run(migrate, env=environment, check=True)
    return environment


def child_environment(database_url: str) -> dict[str, str]:
    """This process's environment for a child that is to use another database."""
    python_path = os.pathsep.join(filter(None, [str(settings.BASE_DIR), os.environ.get("PYTHONPATH")]))
    return {
        **os.environ,
        "DATABASE_URL": database_url,
        # A test that overrides a setting leaves settings.SETTINGS_MODULE empty.
        "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE or os.environ["DJANGO_SETTINGS_MODULE"],
        "PYTHONPATH": python_path,
        "PYTHONUNBUFFERED": "1",
    }


@pytest.fixture(autouse=True)
def _loggers_of_tasks() -> Iterator[None]:
    """Take away what a worker of this process has put on them."""
    yield
    logs = sys.modules.get("django_leasequeue.worker.logs")
    for name in logs._TASK_LOGGERS if logs is not None else ():
        logging.getLogger(name).removeFilter(logs._quieten)
