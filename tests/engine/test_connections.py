"""Our own connections: their parameters are those of the host's alias that libpq knows."""

from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from django.db import connections
from psycopg import sql
from psycopg.conninfo import make_conninfo

from django_leasequeue import engine
from django_leasequeue.devdb import url_from_database
from django_leasequeue.engine import pool
from django_leasequeue.notify.listener import Listener
from django_leasequeue.spark.database import address

pytestmark = pytest.mark.django_db(transaction=True)

#: As django-db-geventpool documents them.
OF_A_BACKEND: dict[str, Any] = {"MAX_CONNS": 20, "REUSE_CONNS": 10}


@pytest.fixture(autouse=True)
def options() -> Any:
    settings = connections["default"].settings_dict
    connections["default"].ensure_connection()  # the host's backend takes its own out, Django's does not know them
    with patch.dict(settings["OPTIONS"], {**OF_A_BACKEND, "sslmode": "prefer"}):
        yield settings


def test_libpq_is_given_what_it_knows(options: Any) -> None:
    found = pool.connection_parameters("default")
    assert not {*OF_A_BACKEND, "prepare_threshold", "cursor_factory", "context"} & found.keys()
    assert found["sslmode"] == "prefer"
    assert "sslmode=prefer" in make_conninfo(**found)
    assert "sslmode=prefer" in url_from_database(options)
    assert "MAX_CONNS" not in url_from_database(options) + address("default")["dsn"]


def test_sync_connections_and_the_listener_open() -> None:
    with pool.connect("default") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    listener = Listener("default")
    try:
        assert listener.subscribe("far_away", lambda _: None).ready.result(10) is True
    finally:
        listener.close()


async def test_async_connections_open(native: None) -> None:
    assert await engine.arun(engine.counts_of([])) == {}


ROLE = {
    "idle_session_timeout": "1s", "lock_timeout": "10ms", "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
}  # fmt: skip


async def test_what_a_role_has_set_for_its_sessions_is_not_for_ours(test_dsn: str, native: None) -> None:
    with psycopg.connect(test_dsn, autocommit=True) as owner:
        database = sql.Identifier(owner.info.dbname)
        for name, value in ROLE.items():
            owner.execute(sql.SQL("ALTER DATABASE {} SET {} = {}").format(database, sql.SQL(name), value))
        try:
            with pool.connect("default") as connection:
                seen = [connection.execute(f"SHOW {name}").fetchone() for name in ROLE]
            async with pool.borrow("default") as borrowed:
                there = [await (await borrowed.execute(f"SHOW {name}")).fetchone() for name in ROLE]
        finally:
            for name in ROLE:
                owner.execute(sql.SQL("ALTER DATABASE {} RESET {}").format(database, sql.SQL(name)))
    assert seen == there == [("0",), ("0",), ("read committed",), ("off",)]
