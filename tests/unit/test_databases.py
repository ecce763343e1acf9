"""The plumbing of the suite itself: every run has a database of its own."""

import os
import subprocess
import sys

import psycopg
import pytest
from django.conf import settings
from django.db import connection

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


def test_real_connections_see_committed_rows(test_dsn: str) -> None:
    with psycopg.connect(test_dsn) as beside:
        mine = (connection.settings_dict["NAME"], connection.settings_dict["HOST"])
        assert (beside.info.dbname, beside.info.host) == mine


@pytest.mark.slow
def test_children_use_the_test_database(subprocess_env: dict[str, str]) -> None:
    code = (
        "import django; django.setup(); from django.db import connection as c; print(c.cursor().connection.info.dbname)"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], env=subprocess_env, cwd="/", capture_output=True, text=True, check=True
    )
    assert child.stdout.strip() == connection.settings_dict["NAME"]


@pytest.mark.slow
def test_a_server_of_a_tests_own_can_be_stopped(migrated_server: TemporaryServer) -> None:
    migrated_server.stop("immediate")
    migrated_server.start()
    with migrated_server.connect() as connection:
        row = connection.execute("SELECT count(*) FROM django_migrations WHERE app = 'leasequeue'").fetchone()
    assert row[0] > 0


def test_children_that_inherit_the_environment_never_find_another_database() -> None:
    assert os.environ["DATABASE_URL"] not in {settings.DATABASE_URL, settings.EMBEDDED_DATABASE.url()}
