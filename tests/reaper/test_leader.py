"""Leadership: its term ends whatever becomes of the leader, late writes are refused, and duties are watched."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from django.conf import settings as django_settings
from django.db import connection, connections, transaction

from django_leasequeue import engine
from django_leasequeue.engine.pool import connect
from django_leasequeue.reaper import Duty, DutyRun, Reaper, duty, leader, status
from django_leasequeue.reaper.leader import NotLeading, Term
from tests.engine.helpers import fetch, run
from tests.support.commands import said
from tests.support.waiting import eventually
from tests.worker.processes import Process
from tests.worker.rude_tasks import Unshown

from .conftest import leading
from .support import backends, leaders, present, running, some

pytestmark = pytest.mark.usefixtures("transactional_db")

#: Seconds in which another reaper leads, whatever became of the first.
BOUND = 15.0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader is silent after a second."""
    for name, seconds in (("BEAT", 0.1), ("SILENT", 1.0), ("VALID", 0.8)):
        monkeypatch.setattr(leader, name, seconds)
    monkeypatch.setattr("django_leasequeue.reaper.reaper.BEAT", 0.1)


@pytest.fixture
def written(transactional_db: None) -> Iterator[None]:
    run("CREATE TABLE written (pid int)")
    yield
    run("DROP TABLE written")


def pids() -> list[int]:
    return [pid for (pid,) in run("SELECT pid FROM written")]


def write(turn: DutyRun) -> None:
    with turn.transaction():
        turn.connection.execute("INSERT INTO written VALUES (1)")


def executor(own: psycopg.Connection[Any]) -> engine.ConnectionExecutor:
    return engine.ConnectionExecutor(own)


def take_over() -> Term:
    """Begin another term, as a follower does that has heard nothing for long."""
    ((term, beat, *_),) = fetch("reaper_look")
    ((number,),) = fetch("reaper_lead", holder="another", term=term, beat=beat)
    return Term(number, "another")


class Program(Process):
    """A reaper in a process of its own."""

    def __init__(self, env: dict[str, str], what: str = "write") -> None:
        super().__init__(env, "tests.reaper.lonely", what)

    def writes(self) -> bool:
        return pids()[-1:] == [self.pid]


@contextmanager
def two(env: dict[str, str], what: str = "write") -> Iterator[tuple[Program, Program]]:
    with closing(Program(env, what)) as first:
        eventually(first.writes)
        with closing(Program(env)) as second:
            eventually(lambda: len(backends()) == 3)
            yield first, second


@pytest.mark.slow  # a leader is silent for ten seconds before another one leads
@pytest.mark.sample
def test_a_stopped_leader_is_replaced_in_time_and_its_late_write_refused(written, subprocess_env) -> None:
    with two(subprocess_env) as (first, second):
        # In the middle of a transaction that holds the term, as often as not.
        os.kill(first.pid, signal.SIGSTOP)
        began = time.monotonic()
        eventually(second.writes)
        assert time.monotonic() - began < BOUND
        before = pids().count(first.pid)
        os.kill(first.pid, signal.SIGCONT)
        eventually(lambda: any(words in first.text for words in ("taken over", "cannot work", "is over")))
        count = len(pids())
        eventually(lambda: len(pids()) > count + 5)
        assert pids().count(first.pid) == before
        assert second.writes()


@pytest.mark.slow  # as before
def test_a_killed_leader_whose_child_keeps_its_sockets_is_replaced_in_time(written, subprocess_env) -> None:
    with two(subprocess_env, "leave_child") as (first, second):
        os.kill(first.pid, signal.SIGKILL)
        first.wait(60)
        began = time.monotonic()
        eventually(second.writes)
        assert time.monotonic() - began < BOUND


def test_a_late_leader_writes_nothing(written) -> None:
    with leading(Duty("write", write, 1.0, fenced=True)) as made:
        assert made.tick() == ["write"]
        another = take_over()
        with pytest.raises(NotLeading):
            made.tick(time.monotonic() + 5)
        assert len(pids()) == 1
        with pytest.raises(NotLeading):
            made._election.beat()
        assert not made.leading
    assert leaders() == [another.holder], "one who leads no longer resigns nothing"


def test_single_statements_of_a_fenced_duty_are_refused_as_well(written) -> None:
    def tidy(turn: DutyRun) -> None:
        turn.fetch("event_forget", {"size": 10})

    with leading(Duty("tidy", tidy, 1.0, fenced=True)) as made:
        assert made.tick() == ["tidy"]
        take_over()
        with pytest.raises(NotLeading):
            made.tick(time.monotonic() + 5)


def test_a_term_that_is_held_waits_for_the_commit_and_beats_do_not(written) -> None:
    with leading(Duty("write", write, 1.0, fenced=True)) as made, connect("default") as own:
        term = made._election.term
        assert term is not None
        with own.transaction():
            term.fence(executor(own))
            made._election.beat()
            with connect("default") as other, pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("SET lock_timeout = '50ms'")
                ((number, beat, *_),) = executor(other).fetch("reaper_look", {})
                executor(other).fetch("reaper_lead", {"holder": "another", "term": number, "beat": beat})
            for name, value in (("idle_in_transaction_session_timeout", "4s"), ("statement_timeout", "8s")):
                found = own.execute(f"SHOW {name}").fetchone()
                assert found == (value,), "the server ends a transaction that hangs"
        assert leaders() == [term.holder]


def test_clocks_that_are_set_neither_keep_a_silent_leader_nor_end_one_that_lives(quick) -> None:
    set_clock = "UPDATE leasequeue_reaperterm SET beat_at = beat_at + %s::interval"
    for step in ("1 day", "-1 day"):
        with leading(Duty("nothing", lambda turn: None, 1.0)) as silent:
            run(set_clock, [step])
            with running(follower := some(1)[0]):
                began = time.monotonic()
                eventually(lambda: follower.leading)
                assert 0.9 < time.monotonic() - began < 10
            with pytest.raises(NotLeading):
                silent._election.beat()
    living, follower = some(2)
    with running(living):
        eventually(lambda: living.leading)
        with running(follower):
            until = time.monotonic() + 3
            while time.monotonic() < until:
                run(set_clock, ["-1 hour"])
                assert not follower.leading
                time.sleep(0.05)
        assert living.leading


def test_no_session_lock_is_held_and_a_pooler_in_transaction_mode_does_no_harm(monkeypatch, quick) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    first, second = some(2)
    with running(first):
        eventually(lambda: first.leading)
        with running(second):
            assert run("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
            assert run("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'") == [(0,)]
            assert first.stop()
            eventually(lambda: second.leading)


def test_two_schemas_of_a_database_have_a_leader_each(monkeypatch) -> None:
    run("CREATE SCHEMA elsewhere CREATE TABLE leasequeue_reaperterm (LIKE public.leasequeue_reaperterm)")
    run("ALTER TABLE elsewhere.leasequeue_reaperterm ADD UNIQUE (single), ADD PRIMARY KEY (term)")
    try:
        with leading(Duty("nothing", lambda turn: None, 1.0)):
            options = dict(connections["default"].settings_dict["OPTIONS"], options="-c search_path=elsewhere")
            monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", options)
            with leading(Duty("nothing", lambda turn: None, 1.0)) as other:
                assert other.leading
    finally:
        monkeypatch.undo()
        run("DROP SCHEMA elsewhere CASCADE")


def test_a_duty_that_exits_ends_neither_the_leader_nor_other_duties(caplog) -> None:
    did: list[str] = []

    def leave(turn: DutyRun) -> None:
        sys.exit(3)

    def raise_unshown(turn: DutyRun) -> None:
        raise Unshown

    bad = [Duty("leaves", leave, 0.05), Duty("unshown", raise_unshown, 0.05)]
    made = Reaper(duties=[*bad, Duty("fine", lambda turn: did.append("x"), 0.05)])
    with running(made):
        eventually(lambda: len(did) > 20)
        assert made.leading
        assert made.failing == ["leaves", "unshown"]
        assert "Duty leaves of the reaper failed" in caplog.text
        assert "SystemExit: 3" in caplog.text


def test_a_transaction_that_a_duty_leaves_open_reaches_no_other_duty(caplog) -> None:
    did: list[bool] = []

    def leave(turn: DutyRun) -> None:
        transaction.atomic().__enter__()
        connection.cursor().execute("SELECT 1")

    def look(turn: DutyRun) -> None:
        did.append(connection.in_atomic_block)

    made = Reaper(duties=[Duty("leaves", leave, 0.05), Duty("fine", look, 0.05)])
    with running(made):
        eventually(lambda: len(did) > 20)
        assert made.failing == ["leaves"]
    assert not any(did)
    assert "It left a transaction on 'default', which was rolled back." in caplog.text


def test_the_others_go_on_without_a_duty_that_does_not_return_and_it_is_said(monkeypatch, caplog, quick) -> None:
    did, release = [], threading.Event()

    def block(turn: DutyRun) -> None:
        release.wait(60)
        turn.fetch("event_forget", {"size": 1})

    made = Reaper(duties=[Duty("blocks", block, 0.05, deadline=0.3), Duty("fine", lambda turn: did.append("x"), 0.05)])
    with running(made):
        eventually(lambda: len(did) > 20)
        assert "Duty blocks of the reaper does not return: the others continue without it" in caplog.text
        assert made.leading
        monkeypatch.setattr(duty, "SHORTEST", 0.1)
        well, figures = eventually(lambda: (found := made.report())[0] or found)
        assert (well, figures["leads"], list(figures["late"])) == (False, True, ["blocks"])
        eventually(lambda: "blocks late: true" in said_of_duties())
        release.set()
        eventually(lambda: made.report()[0])


def said_of_duties() -> str:
    found = present()
    duties = [] if found is None else found.duties
    return " ".join(f"{each['name']} late: {str(each['late']).lower()}" for each in duties)


def test_a_shift_that_cannot_begin_leaves_no_leader(monkeypatch) -> None:
    """Here the connection for the work of the first leader cannot be had: the other one leads."""
    first, second = some(2)
    usual = leader.pool.connect
    refused = []

    def connect_or_not(using: str, **how: Any) -> Any:
        if threading.current_thread().name.startswith("leasequeue-duties") and (not refused or first.leading):
            refused.append(using)
            raise psycopg.OperationalError("too many connections")
        return usual(using, **how)

    monkeypatch.setattr(leader.pool, "connect", connect_or_not)
    with running(first):
        eventually(lambda: refused)
        with running(second):
            eventually(lambda: second.leading)


def test_what_is_late_is_said_by_status_and_overview(monkeypatch) -> None:
    def fail(turn: DutyRun) -> None:
        raise ValueError("the disk is full")

    monkeypatch.setattr(duty, "SHORTEST", 0.0)
    with leading(Duty("broken", fail, 0.01), Duty("fine", lambda turn: None, 100.0)) as made:
        made.tick()
        time.sleep(0.05)
        well, figures = made.report()
        assert (well, figures["late"]) == (False, {"broken": "ValueError: the disk is full"})
        made._election.beat([each.as_dict() for each in made._duties])
        assert "duty broken: ValueError: the disk is full" in said("leasequeue_status")
        (problem,) = status.read_status("default").problems
        assert "The reaper's duty broken has not succeeded for" in problem


def test_once_waits_until_it_is_known_whether_another_one_leads(quick, settings) -> None:
    settings.LEASEQUEUE = {"REAPER": {"INTERVALS": {}}}
    fetch("reaper_lead", holder="dead", term=0, beat=0)
    assert said("runreaper", "--once").startswith("Done: "), "the other one has died"
    assert django_settings.LEASEQUEUE is settings.LEASEQUEUE
