"""Query plans over large tables."""

from collections.abc import Iterator

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection as django_connection
from pytest_django.plugin import DjangoDbBlocker

from django_leasequeue.engine.pool import connect

from .filling import fill, fill_queues


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
