"""Connections of our own: what a session is set to."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from pytest_django import DjangoDbBlocker

from django_leasequeue import engine
from django_leasequeue.engine import pool
from django_leasequeue.engine.jobs.read import get_jobs
from django_leasequeue.engine.operation import APART, Steps, operation
from django_leasequeue.spark.database import resolve
from tests.engine.helpers import make, put
from tests.support.databases import database_alias
from tests.support.temporary_server import TemporaryServer

#: What libpq asks the server for where nothing else names a zone, and so what a server's own default looks like.
ELSEWHERE = "Asia/Tokyo"


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGTZ", ELSEWHERE)


@pytest.mark.django_db(transaction=True)
def test_times_are_in_utc_whatever_the_zone_of_the_server() -> None:
    with pool.connect("default") as connection:
        ((zone, now),) = connection.execute("SELECT current_setting('TimeZone'), now()")
    assert (zone, now.tzinfo) == ("UTC", UTC)


@pytest.mark.django_db(transaction=True)
async def test_and_those_of_the_async_pool() -> None:
    try:
        async with pool.borrow("default") as connection:
            ((zone, now),) = await (await connection.execute("SELECT current_setting('TimeZone'), now()")).fetchall()
    finally:
        await pool.close_pools()
    assert (zone, now.tzinfo) == ("UTC", UTC)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("inside", [True, False])
def test_and_those_of_djangos_connection_without_time_zones(settings: Any, inside: bool) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, ELSEWHERE
    connection = connections["default"]
    connection.close()
    try:
        with transaction.atomic() if inside else nullcontext():
            make()
            (seq,) = put(1)
            before = datetime.now(UTC)
            (job,) = engine.run(get_jobs([seq]))
            with connection.cursor() as cursor:
                cursor.execute("SELECT now()")
                assert cursor.fetchone()[0].utcoffset() != timedelta(0), "the host's own are as they were"
        assert job.created_at.tzinfo is UTC
        assert abs(job.created_at - before) < timedelta(minutes=1)
    finally:
        connection.close()


@pytest.fixture
def role(migrated_server: TemporaryServer, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """An alias whose user may do nothing by itself, and takes the role of one who may."""
    with migrated_server.connect() as connection:
        connection.execute('CREATE ROLE "Shop owner" SUPERUSER; CREATE ROLE app LOGIN; GRANT "Shop owner" TO app')
    database = migrated_server.django_database()
    database = {**database, "USER": "app", "OPTIONS": {**database.get("OPTIONS", {}), "assume_role": "Shop owner"}}
    with database_alias("role", database), django_db_blocker.unblock():
        yield "role"


async def test_our_connections_take_the_role_that_django_takes(role: str) -> None:
    def sync() -> list[str]:
        with pool.connect(role) as connection, resolve({"alias": role}).connect() as spark:
            found = [one.execute("SELECT current_user").fetchone() for one in (connection, spark)]
        with transaction.atomic(using=role):
            engine.run(apart(), role)
        connections[role].close()
        return [name for (name,) in found if name]

    @operation
    def apart() -> Steps[None]:
        yield APART, {"name": "queue_get", "params": {"project": "", "name": "none"}}

    assert await asyncio.to_thread(sync) == ["Shop owner"] * 2
    try:
        async with pool.borrow(role) as connection:
            found = await (await connection.execute("SELECT current_user")).fetchone()
    finally:
        await pool.close_pools()
    assert found == ("Shop owner",)
