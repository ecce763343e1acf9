"""The plumbing of the suite itself: every run has a database of its own."""

import os

import pytest
from django.conf import settings

from tests.support.databases import OwnDatabase
from tests.support.temporary_server import TemporaryServer


def names(server: TemporaryServer) -> set[str]:
    with server.connect() as admin:
        return {row[0] for row in admin.execute("SELECT datname FROM pg_database WHERE datname LIKE 'test%'")}


@pytest.mark.slow
def test_a_run_drops_what_killed_runs_left_and_nothing_else(private_server: TemporaryServer) -> None:
    entry = private_server.django_database()
    with OwnDatabase(entry) as living, private_server.connect() as admin:
        admin.execute(f'CREATE DATABASE "{living.name}"')
        admin.execute('CREATE DATABASE "test_leasequeue_0123abcd"')
        admin.execute('CREATE DATABASE "test_leasequeue_by_hand"')
        with OwnDatabase(entry) as own:
            assert own.name != living.name
            assert names(private_server) == {living.name, "test_leasequeue_by_hand"}
    with OwnDatabase(entry):
        assert names(private_server) == {"test_leasequeue_by_hand"}


def test_children_that_inherit_the_environment_never_find_another_database() -> None:
    assert os.environ["DATABASE_URL"] not in {settings.DATABASE_URL, settings.EMBEDDED_DATABASE.url()}
