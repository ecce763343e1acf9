"""Query plans over large tables."""

from collections.abc import Iterator

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection as django_connection
from pytest_django.plugin import DjangoDbBlocker

from django_leasequeue.engine import clock
from django_leasequeue.engine.pool import connect
from django_leasequeue.engine.runner import STEADY

from .explain import Explaining
from .filling import NOW, fill, fill_queues
from .regimes import host_connection


@pytest.fixture(scope="module")
def full_tables(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[psycopg.Connection]:
    """A connection of our own beside full and analyzed tables, which are emptied after the module."""
    with django_db_blocker.unblock(), connect("default") as connection:
        call_command("flush", verbosity=0, interactive=False)
        fill_queues(connection)
        fill(connection)
        connection.execute("VACUUM (ANALYZE)")
        yield connection
        call_command("flush", verbosity=0, interactive=False)
        django_connection.close()


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
            connection.execute(STEADY)
            yield Explaining(connection)
