"""The reaper itself: one leads, a crash is taken over, one failing duty stops nothing, a stop hands over at once."""

import logging
import threading
from collections.abc import Iterator

import psycopg
import pytest
from django.core.management import CommandError

from django_leasequeue.engine.pool import connect
from django_leasequeue.models import LiveJob
from django_leasequeue.reaper import Duty, DutyRun, Reaper, leader, register
from tests.engine.helpers import make, put, run
from tests.reaper.conftest import leading, tick
from tests.reaper.support import backends, leaders, running, some
from tests.support.commands import said
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("transactional_db")


def test_exactly_one_leads_and_a_stop_hands_over_at_once() -> None:
    reapers = some(3)
    with pytest.MonkeyPatch.context() as patch, running(*reapers):
        patch.setattr(leader.Election, "pause", 600.0)
        seen = []
        while reapers:
            eventually(leaders)
            eventually(lambda: any(each.leading for each in reapers))
            (first,) = [each for each in reapers if each.leading]
            assert len(leaders()) == 1
            seen.append(first)
            reapers.remove(first)
            # The others would look again in ten minutes: they hear of it.
            assert first.stop()
            assert not first.leading
        assert len(seen) == 3
    assert leaders() == []


def test_a_leader_whose_connections_break_goes_on_in_its_term(caplog) -> None:
    caplog.set_level("INFO", "django_leasequeue")
    (made,) = some(1)
    with running(made):
        for _ in range(3):
            eventually(lambda: made.leading and len(backends()) == 2)
            (holder, pids) = leaders(), backends()
            run("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS u(pid)", [list(pids)])
            made._wakeup.wake()
            eventually(lambda pids=pids: made.leading and len(backends() - pids) == 2)
            assert leaders() == holder
    assert "The reaper cannot work, and tries again" in caplog.text


def test_a_follower_whose_connection_breaks_hears_a_leader_that_stops() -> None:
    first, second = some(2)
    with running(first):
        eventually(lambda: first.leading and len(backends()) == 2)
        ours = backends()
        with running(second):
            (pid,) = eventually(lambda: backends() - ours)
            run("SELECT pg_terminate_backend(%s::int)", [pid])
            eventually(lambda: backends() - ours - {pid})
            assert first.stop()
            eventually(lambda: second.leading)


def test_a_failing_duty_stops_no_other_and_is_tried_again_later(clock, caplog) -> None:
    done = []

    def broken(turn: DutyRun) -> None:
        done.append("broken")
        turn.connection.execute("BEGIN")
        turn.connection.execute("SELECT 1 / 0")

    fine = Duty("fine", lambda turn: done.append("fine"), 1.0)
    with leading(Duty("broken", broken, 1.0), fine) as made:
        assert (made.tick(), made.failing) == (["fine"], ["broken"])
        assert "Duty broken of the reaper failed; its next run is in 2.0 s" in caplog.text
        assert "division by zero" in caplog.text
        assert tick(made, seconds=1) == ["fine"]
        assert done == ["broken", "fine", "fine"]
        for _ in range(200):
            tick(made, seconds=1)
    assert 5 <= done.count("broken") <= 9, "at most a minute apart, doubling until then"
    assert done.count("fine") == 202


def test_no_statement_of_a_duty_waits_for_ever(clock) -> None:
    found = []

    def look(turn: DutyRun) -> None:
        found.extend(turn.connection.execute(f"SHOW {name}_timeout").fetchone() for name in ("lock", "statement"))

    with leading(Duty("look", look, 1.0)) as made:
        made.tick()
    assert found == [("1s",), ("10min",)]


def test_a_duty_that_works_again_has_its_interval_back() -> None:
    fail = [True, True, False, False]

    def moody(turn: DutyRun) -> None:
        if fail.pop(0):
            raise ValueError("not today")

    with leading(Duty("moody", moody, 1.0)) as made:
        did = [bool(made.tick(now)) for now in (0, 1, 2, 5, 6, 6.5, 7)]
    assert did == [False, False, False, False, True, False, True]
    assert made.failing == []


@pytest.mark.slow
def test_duties_that_need_not_hurry_begin_later(clock) -> None:
    did: list[tuple[str, float]] = []
    began = clock.now

    def note(name: str) -> Duty:
        return Duty(name, lambda turn: did.append((name, (clock.now - began).total_seconds())), intervals[name])

    intervals = {"hourly": 3_600.0, "quick": 0.05, "minutely": 60.0}
    with running(Reaper(duties=[note(name) for name in intervals])):
        eventually(lambda: did)
        for _ in range(20):
            clock.advance(seconds=0.5)
            seen = len(did)
            eventually(lambda seen=seen: len(did) > seen)
        eventually(lambda: len(set(did)) > 2 and {name for name, _ in did} == set(intervals))
    assert did[0] == ("quick", 0)
    first = {name: min(at for each, at in did if each == name) for name in intervals}
    assert 2 <= first["hourly"] <= 10
    assert 2 <= first["minutely"] <= 10


def test_other_packages_add_duties(clock) -> None:
    done: list[str] = []

    def extra(turn: DutyRun) -> bool:
        done.append(turn.alias)
        assert turn.fetch("queue_page", {"after": 0, "size": 1}) == []
        return len(done) < 3

    register("extra", extra, 5.0)
    register("extra", extra, 7.0)
    with pytest.raises(ValueError, match="there is a duty 'extra' already"):
        register("extra", lambda turn: None, 5.0)
    with pytest.raises(ValueError, match="above 0"):
        register("other", extra, 0)
    with leading() as made:
        assert "extra" in made.round()
        assert done == ["default"] * 3, "it said twice that there was more"
        assert "extra" not in tick(made, seconds=6)
        assert "extra" in tick(made, seconds=2)


@pytest.mark.slow
def test_a_stop_breaks_off_a_long_statement(settings) -> None:
    began = threading.Event()

    def long(turn: DutyRun) -> None:
        began.set()
        turn.connection.execute("SELECT pg_sleep(500)")

    made = Reaper(duties=[Duty("long", long, 1.0)])
    made.start()
    assert began.wait(60)
    # After a fifth of it the statement is broken off.
    assert made.stop(timeout=100)
    assert leaders() == []


def test_a_database_that_is_away_is_waited_for_and_said_once(monkeypatch, caplog) -> None:
    caplog.set_level("INFO", "django_leasequeue")
    attempts = []

    def away(using: str, *, dsn: str | None = None) -> psycopg.Connection:
        attempts.append(using)
        if len(attempts) < 3:
            raise psycopg.OperationalError("the database system is starting up")
        return connect(using, dsn=dsn)

    monkeypatch.setattr("django_leasequeue.reaper.leader.pool.connect", away)
    with running(made := some(1)[0]):
        eventually(lambda: made.leading)
    assert attempts[:3] == ["default"] * 3
    lines = "\n".join(entry.getMessage() for entry in caplog.records if entry.levelno >= logging.INFO)
    assert lines.count("The reaper cannot work, and tries again: the database system is starting up") == 1
    assert lines.count("The reaper works again") == 1


def test_the_command_does_one_round_leaves_the_work_to_a_leader_and_tells_what_failed(settings) -> None:
    make("work")
    put(1, delay_ms=1)
    with running(made := some(1)[0]):
        eventually(lambda: made.leading)
        assert "Another reaper leads" in said("runreaper", "--once")
        with pytest.raises(RuntimeError, match="runs already"):
            made.start()
    assert said("runreaper", "--once").startswith("Done: sweep, promote, advance, floors")
    assert LiveJob.objects.get().state == 0
    register("broken", lambda turn: turn.connection.execute("SELECT 1 / 0") and None, 1.0)
    with pytest.raises(CommandError, match=r"Failed: broken\."):
        said("runreaper", "--once")
    settings.LEASEQUEUE = {"REAPER": {"INTERVALS": {"x": 1}}}
    with pytest.raises(CommandError, match="it has 'x'"):
        said("runreaper", "--once")


@pytest.fixture(autouse=True)
def _log_lines_stay_here() -> Iterator[None]:
    """The command sends our log lines to standard error: not for the rest of the suite."""
    logger = logging.getLogger("django_leasequeue")
    before = logger.handlers[:], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate, logger.level = before
