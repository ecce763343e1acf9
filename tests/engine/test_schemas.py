"""Two installs in two schemas of one database: nothing that one of them does reaches the other."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections
from django.db.backends.signals import connection_created
from django.test import override_settings
from pytest_django import DjangoDbBlocker

from django_leasequeue import engine
from django_leasequeue.checks.database import check_databases
from django_leasequeue.engine import ConnectionExecutor, NewJob, arrays, pool
from django_leasequeue.engine.queues.routing import routes
from django_leasequeue.engine.topics import log
from django_leasequeue.models import LiveJob
from django_leasequeue.notify import Listener, close_listeners
from django_leasequeue.notify.alarms import Alarm
from django_leasequeue.reaper import Reaper
from django_leasequeue.words import LOCKS, named
from tests.reaper.support import running
from tests.support.databases import close_emptying, database_alias, empty_tables
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.sample]

SCHEMA = "elsewhere"
BOTH = ("default", SCHEMA)


def entry() -> dict[str, Any]:
    """The same database, with a search path that leads to the other schema."""
    found = {**settings.DATABASES["default"]}
    return {**found, "OPTIONS": {**found.get("OPTIONS", {}), "options": f"-c search_path={SCHEMA}"}}


@pytest.fixture(scope="module")
def migrated(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock():
        connection.cursor().execute(f"CREATE SCHEMA {SCHEMA}")
        try:
            with database_alias(SCHEMA, entry()):
                call_command("migrate", database=SCHEMA, verbosity=0)
            yield
        finally:
            close_emptying()
            connection.cursor().execute(f"DROP SCHEMA {SCHEMA} CASCADE")


@pytest.fixture(autouse=True)
def queue_id(migrated: None, django_db_blocker: DjangoDbBlocker) -> Iterator[int]:
    """Both installs have a queue of the same name and number."""
    both = override_settings(LEASEQUEUE={"DATABASES": list(BOTH)})
    with database_alias(SCHEMA, entry()), both, django_db_blocker.unblock():
        routes().forget()
        try:
            for alias in BOTH:
                with connections[alias].cursor() as cursor:
                    cursor.execute("ALTER SEQUENCE leasequeue_queue_id_seq RESTART WITH 7000")
                engine.run(engine.create("mail", preset="django"), alias)
            yield 7000
        finally:
            close_listeners()
            for alias in BOTH:
                empty_tables(alias)


@contextmanager
def own(alias: str) -> Iterator[ConnectionExecutor]:
    with pool.connect(alias) as opened:
        yield ConnectionExecutor(opened)


def keys(alias: str) -> tuple[Any, ...]:
    query = named("SELECT {channel.jobs}, {channel.reaper}, " + ", ".join(f"{{lock.{name}}}" for name in LOCKS))
    with connections[alias].cursor() as cursor:
        cursor.execute(query)
        found: tuple[Any, ...] = cursor.fetchone()
    return found


def test_no_key_and_no_channel_is_that_of_the_other() -> None:
    first, second = (keys(alias) for alias in BOTH)
    assert len({*first, *second}) == 2 * (len(LOCKS) + 2)


def heard(alias: str, connection: psycopg.Connection[Any]) -> set[str]:
    """What the channel of an install told since it was asked last."""
    connection.execute("SELECT pg_notify('leasequeue_end', '')")
    told = {(note.channel, note.payload) for note in _until_end(connection)}
    return {payload for channel, payload in told if channel == keys(alias)[0]}


def _until_end(connection: psycopg.Connection[Any]) -> Iterator[psycopg.Notify]:
    for note in connection.notifies(timeout=60):
        if note.channel == "leasequeue_end":
            return
        yield note


@contextmanager
def listening() -> Iterator[psycopg.Connection[Any]]:
    with pool.connect("default") as opened:
        for channel in ("leasequeue_end", *(keys(alias)[0] for alias in BOTH)):
            opened.execute(f"LISTEN {channel}")
        yield opened


@contextmanager
def waiting(alias: str, queue_id: int) -> Iterator[Alarm]:
    """Listen for jobs of the queue in one install."""
    listener, alarm = Listener(alias), Alarm()
    watch = listener.watch([queue_id], alarm.wake)
    try:
        assert watch.wait_ready(60)
        eventually(lambda: not listener._unsettled(), "nothing else wakes it")
        alarm.wait(0)
        yield alarm
    finally:
        watch.close()
        listener.close()


@pytest.mark.parametrize("alias", BOTH)
def test_only_a_producer_of_the_same_install_sees_and_wakes_who_waits(alias: str, queue_id: int) -> None:
    """Also on one connection whose search path changes between two calls, as that of django-tenants does."""
    with own("default") as producer, listening() as all_channels, waiting(alias, queue_id) as alarm:
        for _ in range(3):  # the statement is prepared, and its plan is kept
            for each in BOTH:
                path = "public" if each == "default" else SCHEMA
                producer.connection.execute(f"SET search_path = {path}")
                producer.run(engine.enqueue("mail", [NewJob(1)]))
                assert heard(each, all_channels) == ({f"q{queue_id}"} if each == alias else set())
                assert alarm.wait(60) if each == alias else not alarm.wait(0)
    assert [LiveJob.objects.using(each).count() for each in BOTH] == [3, 3]


@pytest.mark.parametrize("dsn", [True, False])
def test_a_listener_has_the_schema_of_its_alias_whatever_its_own_connection_finds(
    dsn: bool, queue_id: int, test_database_url: str, caplog: Any
) -> None:
    """The search path stands in OPTIONS of the alias, and not in its LISTEN_DSN."""
    given = {SCHEMA: test_database_url} if dsn else None
    settings = {"DATABASES": list(BOTH), "LISTEN_DSN": given}
    with override_settings(LEASEQUEUE=settings), waiting(SCHEMA, queue_id) as alarm:
        engine.run(engine.enqueue("mail", [NewJob(1)]), "default")
        assert not alarm.wait(0.2)
        engine.run(engine.enqueue("mail", [NewJob(1)]), SCHEMA)
        assert alarm.wait(60)
    assert "LISTEN connection lost" not in caplog.text


def test_each_install_has_a_reaper_that_leads_and_a_resignation_is_heard_by_its_own_only() -> None:
    with listening() as all_channels:
        for alias in BOTH:
            all_channels.execute(f"LISTEN {keys(alias)[1]}")
        first, second = (Reaper(alias) for alias in BOTH)
        with running(first), running(second):
            eventually(lambda: first.leading and second.leading, "both lead", 60)
            second.stop()
            assert first.leading
        told = {note.channel for note in all_channels.notifies(timeout=60, stop_after=2)}
    assert told == {keys(alias)[1] for alias in BOTH}


def test_a_lock_of_one_install_does_not_hold_up_the_other(queue_id: int) -> None:
    """Of each kind, for the same queue and the same number."""
    names = ", ".join(f"pg_try_advisory_xact_lock({{lock.{name}}}, %s)" for name in LOCKS)
    with own("default") as first, own(SCHEMA) as second, first.connection.transaction():
        for executor, free in ((first, True), (second, True)):
            with second.connection.transaction():
                found = executor.connection.execute(named(f"SELECT {names}"), [queue_id] * len(LOCKS)).fetchone()
            assert set(found or ()) == {free}


def test_figures_count_the_listeners_and_locks_of_one_install(queue_id: int) -> None:
    params = {"queues": arrays.integers([queue_id]), "silent": 30, "old": 60}
    with waiting(SCHEMA, queue_id):
        for alias, listeners in zip(BOTH, (0, 1), strict=True):
            with own(alias) as executor:
                assert [row[2] for row in executor.fetch("queue_health", params)] == [listeners]


ENQUEUE = "SELECT {}.leasequeue_enqueue('tests.tasks.samples.add', '{{\"args\": [1]}}', 'mail', key => 'k')"


@pytest.mark.parametrize("path", ["public", SCHEMA, "''"])
def test_a_call_from_sql_is_for_the_install_whose_function_it_calls(path: str, queue_id: int) -> None:
    with own("default") as caller, listening() as all_channels, waiting(SCHEMA, queue_id):
        caller.connection.execute(f"SET search_path = {path}")
        for alias, schema in {"default": "public", SCHEMA: SCHEMA}.items():
            heard(alias, all_channels)
            ids = [caller.connection.execute(ENQUEUE.format(schema)).fetchone() for _ in range(3)]
            assert len(set(ids)) == 1
            assert heard(alias, all_channels) == ({f"q{queue_id}"} if alias == SCHEMA else set())
    assert [LiveJob.objects.using(alias).filter(queue=queue_id).count() for alias in BOTH] == [1, 1]


def test_a_call_from_sql_follows_its_schema_under_another_name(queue_id: int) -> None:
    with own("default") as caller, caller.connection.transaction(force_rollback=True):
        caller.connection.execute(ENQUEUE.format(SCHEMA))
        caller.connection.execute(f'ALTER SCHEMA {SCHEMA} RENAME TO "More tests"')
        caller.connection.execute(ENQUEUE.replace("'k'", "'l'").format('"More tests"'))
        found = caller.connection.execute('SELECT count(*) FROM "More tests".leasequeue_ready').fetchone()
    assert found == (2,)


def test_a_sealed_number_of_one_install_lets_no_reader_of_the_other_skip_a_record() -> None:
    """One process reads both, as one that serves tenants may; in the second an older number is not committed yet."""
    seals = log.Sealer()

    def page(alias: str, executor: ConnectionExecutor, after: int = 0) -> log.LogPage:
        executor.connection.execute(f"SET search_path = {'public' if alias == 'default' else SCHEMA}")
        return executor.run(log.read("log", after=after, seals=seals))

    for alias in BOTH:
        engine.run(engine.create("log", preset="topics", type="log"), alias)
    with own("default") as reader, own("default") as first, own(SCHEMA) as slow, own(SCHEMA) as quick:
        first.connection.execute("SELECT setval('leasequeue_job_seq_seq', 1000000)")
        quick.connection.execute("SELECT setval('leasequeue_job_seq_seq', 1000000)")
        first.run(engine.enqueue("log", [NewJob(n) for n in range(100)]))
        assert page("default", reader).sealed
        with slow.connection.transaction():
            slow.run(engine.enqueue("log", [NewJob("slow")]))
            quick.run(engine.enqueue("log", [NewJob("quick") for _ in range(100)]))
            early = page(SCHEMA, reader)
        late = page(SCHEMA, reader, early.cursor)
    assert early.records == []
    assert [late.records[0].data, len(late.records)] == ["slow", 101]


def test_a_check_notices_a_search_path_that_only_django_s_connection_has() -> None:
    def noticed(alias: str) -> list[str]:
        return [str(each.id) for each in check_databases(None, [alias]) if each.id == "leasequeue.W030"]

    def lead(connection: Any, **kwargs: Any) -> None:
        connection.connection.execute(f"SET search_path = {SCHEMA}")

    assert [noticed(alias) for alias in BOTH] == [[], []]
    connections["default"].close()
    connection_created.connect(lead)
    try:
        assert noticed("default") == ["leasequeue.W030"]
    finally:
        connection_created.disconnect(lead)
        connections["default"].close()


def test_keys_and_channels_are_constants_of_the_plan() -> None:
    for name in ("{lock.listeners}", "{channel.jobs}"):
        with connections["default"].cursor() as cursor:
            cursor.execute("EXPLAIN (VERBOSE) SELECT f FROM (SELECT " + named(name) + " AS f OFFSET 0) s")
            plan = "\n".join(line for (line,) in cursor.fetchall())
        assert re.search(r"Output: \(?'?(leasequeue_)?\d+", plan), plan
        assert "regclass" not in plan
