"""Settings of a host's session that change how values are read: ours come out the same, or an error says why not."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from django_leasequeue import Queue, engine
from django_leasequeue.engine import NewJob, clock, exchange
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.sql import paths, statement
from tests.engine.helpers import NODE, claim, run

pytestmark = pytest.mark.django_db(transaction=True)

#: What roles of old applications have.
SETTINGS = {
    "array_nulls": "off",
    "bytea_output": "escape",
    "IntervalStyle": "sql_standard",
    "standard_conforming_strings": "off",
    "extra_float_digits": "0",
    "transform_null_equals": "on",
    "TimeZone": "Asia/Kathmandu",
    "client_encoding": "LATIN1",
}


@pytest.fixture(params=["exchange", "cursor"])
def way(request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """How statements go over Django's connection."""
    settings.DEBUG = False
    monkeypatch.setattr(exchange, "ENABLED", request.param == "exchange")
    return str(request.param)


def story(queue: str, now: clock.Clock) -> list[Any]:
    """Return what jobs with and without each of their fields read as, on all their ways."""
    engine.run(engine.create(queue, dead_letter="self", result_ttl_ms=60_000, max_deliveries=1))
    at = now.now + timedelta(microseconds=123_457)
    engine.run(engine.enqueue(queue, [
        NewJob({"a": "NULL", "b": ["\\", "'", "é", None, 1e300]}, b"\0\\'\xff", "k", "NULL", "tag"),
        NewJob(data=None, body=b""),
        NewJob(data="x", meta={"m": "\\d"}, reply_to=None, priority=1, run_at=at),
        NewJob(tags={"one": "two\\"}),
    ]))  # fmt: skip
    jobs = claim(10, queue)
    first, second, last = jobs
    seen: list[Any] = [
        [job.data_json, job.meta_json, job.key, job.name, job.tag, job.body, job.reply_to, job.deadline - now.now]
        for job in jobs
    ]
    failure = engine.Failure("E\\", "it's \\ 'é'", "", "f" * 16)
    endings = [
        engine.Ending(first.seq, first.token, result_json='{"r": "NULL"}', body=b"\\\0"),
        engine.Ending(second.seq, second.token),
        engine.Ending(last.seq, last.token, failure=failure),
    ]
    seen.append(list(engine.run(engine.finish(endings, NODE)).outcomes.values()))
    for state in ("ready", "delayed", "leased", "dead"):
        for row in engine.run(engine.list_jobs(queue, state)).jobs:
            due = row.available_at and row.available_at - now.now
            seen.append((state, row.data_json, row.key, row.name, row.tag, due))
    counts = Queue(queue).counts()
    seen.append((counts.ready, counts.delayed, counts.in_flight, counts.dead))
    now.advance(seconds=1)
    seen += [(job.data_json, job.meta_json, job.reply_to) for job in claim(10, queue)]
    return seen


@pytest.mark.parametrize(("name", "value"), SETTINGS.items(), ids=SETTINGS)
def test_what_a_session_has_set_changes_no_answer(way: str, clock: clock.Clock, name: str, value: str) -> None:
    clock.advance(microseconds=123_457)
    before = story("plainly", clock)
    try:
        run(f"SET {name} = '{value}'")
        assert story("other", clock) == before
        with transaction.atomic():
            assert story("inside", clock) == before
        assert run(f"SHOW {name}") == [(value,)], "what the host has set stays"
    finally:
        connection.close()


@pytest.mark.parametrize(("name", "value", "error"), [
    ("client_encoding", "SQL_ASCII", InvalidOption), ("DateStyle", "German", NotImplementedError),
])  # fmt: skip
def test_what_cannot_be_read_is_said(
    way: str, clock: clock.Clock, name: str, value: str, error: type[Exception]
) -> None:
    """Django cannot read times of another DateStyle itself; nothing of ours needs text but by its cursor."""
    clock.advance(microseconds=123_457)
    before = story("plainly", clock)
    try:
        run(f"SET {name} = '{value}'")
        if way == "exchange" and name == "DateStyle":
            assert story("other", clock) == before
        else:
            with pytest.raises(error, match=r"client_encoding is SQL_ASCII|DateStyle"):
                story("other", clock)
    finally:
        connection.close()


def test_statements_have_no_backslash() -> None:
    """It is a character of its own only with standard_conforming_strings."""
    assert [name for name in paths() if "\\" in statement(name)] == []
