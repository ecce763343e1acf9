"""Connections of our own: what a session is set to."""

from datetime import UTC

import pytest

from django_leasequeue.engine import pool

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
