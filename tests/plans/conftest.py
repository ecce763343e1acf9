"""Query plans over large tables."""

from collections.abc import Iterator

import psycopg
import pytest
from pytest_django.plugin import DjangoDbBlocker

from django_leasequeue.engine import clock
from django_leasequeue.engine.django_executor import STEADY

from .filling import NOW, empty_database, fill, fill_queues
from .regimes import Explaining, host_connection


@pytest.fixture(scope="module")
def full_tables(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[psycopg.Connection]:
    """A connection of our own beside full and analyzed tables, which are emptied after the module."""
    with empty_database(django_db_blocker) as connection:
        fill_queues(connection)
        fill(connection)
        connection.execute("VACUUM (ANALYZE)")
        yield connection


@pytest.fixture(params=["own", "host"])
def explaining(
    request: pytest.FixtureRequest, full_tables: psycopg.Connection, django_db_blocker: DjangoDbBlocker
) -> Iterator[Explaining]:
    """An executor that explains, on a connection of our own or one as a host has it; its transaction is rolled back."""
    with django_db_blocker.unblock(), clock.hold(clock.Clock(NOW)):
        if request.param == "own":
            with full_tables.transaction(force_rollback=True):
                yield Explaining(full_tables)
            return
        with host_connection() as connection, connection.transaction(force_rollback=True):
            connection.execute(STEADY.outside.text)
            yield Explaining(connection)
