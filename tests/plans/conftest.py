"""Query plans over large tables."""

from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from pytest_django.plugin import DjangoDbBlocker

from django_leasequeue.engine import clock
from django_leasequeue.engine.django_executor import STEADY

from .filling import NOW, empty_database, fill, fill_queues, fill_up
from .regimes import Explaining, host_connection


@pytest.fixture(scope="module")
def full_tables(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[psycopg.Connection]:
    """A connection of our own beside full and analyzed tables, which are emptied after the module."""
    with empty_database(django_db_blocker) as connection:
        fill_queues(connection)
        fill(connection)
        connection.execute("VACUUM (ANALYZE)")
        yield connection


@pytest.fixture(scope="module")
def fuller_tables(full_tables: psycopg.Connection) -> None:
    """The same with 600,000 more ready jobs and as many finished ones."""
    fill_up(full_tables)
    full_tables.execute("VACUUM (ANALYZE)")


@pytest.fixture(params=["own", "host"])
def connection(
    request: pytest.FixtureRequest, full_tables: psycopg.Connection, django_db_blocker: DjangoDbBlocker
) -> Iterator[psycopg.Connection]:
    """A connection of our own, or one as a host has it, in a transaction that is rolled back."""
    with ExitStack() as stack:
        stack.enter_context(django_db_blocker.unblock())
        found = full_tables if request.param == "own" else stack.enter_context(host_connection())
        stack.enter_context(found.transaction(force_rollback=True))
        if request.param == "host":
            found.execute(STEADY.outside.text)
        yield found


@pytest.fixture
def explaining(connection: psycopg.Connection) -> Iterator[Explaining]:
    """An executor that explains what it runs."""
    with clock.hold(clock.Clock(NOW)):
        yield Explaining(connection)
