"""Ticks of recurring tasks: many in a transaction, and what a bad one, or code that does not return, does to others."""

import threading
import time
from typing import Any

import pytest
from django.db import connection

from django_leasequeue.engine.pool import connect
from django_leasequeue.models import RecurringTask, StoredJob
from django_leasequeue.reaper import duty as host_code
from django_leasequeue.reaper import recurring as duty
from django_leasequeue.reaper.ticks import take_ticks
from django_leasequeue.tasks.api import BaseTaskBackend
from tests.reaper.recurring.support import begun, made
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("transactional_db")

#: What a backend of another kind waits for.
answers = threading.Event()


class Elsewhere(BaseTaskBackend):
    """A backend that writes to no database of queues, and whose service may not answer."""

    calls: list[tuple[Any, ...]] = []

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        self.calls.append(tuple(args))
        assert answers.wait(30)

        class Result:
            id = "of another kind"

        return Result


@pytest.fixture
def elsewhere(settings: Any, monkeypatch: pytest.MonkeyPatch) -> type[Elsewhere]:
    settings.TASKS = {**settings.TASKS, "elsewhere": {"BACKEND": f"{__name__}.Elsewhere", "QUEUES": []}}
    monkeypatch.setattr(Elsewhere, "calls", [])
    monkeypatch.setattr(host_code, "WAIT", 0.01)
    answers.clear()
    return Elsewhere


def errors() -> dict[str, str]:
    return dict(RecurringTask.objects.exclude(last_error="").values_list("name", "last_error"))


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ticks were taken in each transaction."""
    found: list[int] = []

    def take(alias: str, ticks: Any, fence: Any) -> Any:
        found.append(len(ticks))
        return take_ticks(alias, ticks, fence)

    monkeypatch.setattr(duty, "take_ticks", take)
    return found


def test_due_ticks_share_transactions(clock, monkeypatch, sizes) -> None:
    monkeypatch.setattr(duty, "BATCH", 10)
    for number in range(24):
        made(f"r{number}", "every minute", queue_name=f"q{number % 3}")
    looker = begun()
    assert sorted(looker.look(minutes=1)) == sorted(f"r{number}" for number in range(24))
    assert sizes == [10, 10, 4]
    rows = {row.name: row.last_seq for row in RecurringTask.objects.all()}
    assert {job.data["args"][0]: job.seq for job in StoredJob.objects.all()} == rows
    assert StoredJob.objects.values("queue").distinct().count() == 3


def test_a_bad_tick_takes_no_other_along_and_has_a_transaction_of_its_own_from_then_on(clock, sizes) -> None:
    for number in range(4):
        made(f"r{number}", "every minute")
    looker = begun()
    job = {"queue": "q", "project": "", "database": None, "preset": None, "options": {}, "job": {"priority": "high"}}
    RecurringTask.objects.filter(name="r2").update(template=job)
    assert sorted(looker.look(minutes=1)) == ["r0", "r1", "r3"]
    assert list(errors()) == ["r2"]
    assert sizes == [4, 1, 1, 1, 1]
    sizes.clear()
    assert len(looker.look(minutes=1)) == 6
    assert sizes == [3, 1]
    RecurringTask.objects.filter(name="r2").update(template=None)
    assert len(looker.look(minutes=1)) == 10
    assert errors() == {}


def test_a_row_that_somebody_has_locked_makes_no_other_wait(clock) -> None:
    made("locked", "every minute")
    made("free", "every minute")
    looker = begun()
    clock.advance(minutes=1)
    with connect("default") as other, other.transaction():
        other.execute("SELECT FROM leasequeue_recurringtask WHERE name = 'locked' FOR UPDATE")
        assert looker.look() == ["free"]
    assert looker.look() == ["free", "locked"]


#: Seconds: the code that returns does so in time on a busy machine too, so these tests take longer than a second.
PATIENCE = 2.0


@pytest.mark.slow
def test_a_backend_that_does_not_answer_stops_no_tick_and_is_said(clock, elsewhere, monkeypatch) -> None:
    made("hangs", "every minute", backend="elsewhere")
    made("fine", "every minute")
    looker = begun()
    clock.advance(minutes=1)
    monkeypatch.setattr(host_code, "PATIENCE", PATIENCE)
    assert looker.look() == ["fine"]
    eventually(lambda: looker.look() and "hangs" in errors(), "it is said")
    assert "has not returned" in errors()["hangs"]
    assert looker.look(minutes=1) == ["fine"] * 2
    assert elsewhere.calls == [("hangs",)], "no second call beside the first"
    assert errors()["hangs"] == "Its backend has not returned since the tick before."
    answers.set()

    def answered() -> bool:
        looker.look()
        return errors() == {}

    eventually(answered, "it has answered")
    looker.look(minutes=1)
    eventually(lambda: len(elsewhere.calls) == 2, "the next tick is enqueued there again")


@pytest.mark.slow
def test_a_module_that_does_not_return_at_its_import_stops_no_tick_and_is_said(clock, monkeypatch) -> None:
    going = threading.Event()

    def imports(due: Any) -> Any:
        assert going.wait(30)
        connection.ensure_connection()
        raise SystemExit(7)

    real = duty.job_of
    monkeypatch.setattr(duty, "job_of", lambda due: imports(due) if due.task == "slow" else real(due))
    monkeypatch.setattr(host_code, "WAIT", 0.01)
    made("slow", "every minute", task="slow")
    made("fine", "every minute")
    looker = begun()
    clock.advance(minutes=1)
    with monkeypatch.context() as patch:
        patch.setattr(host_code, "PATIENCE", PATIENCE)
        assert looker.look() == ["fine"]
        eventually(lambda: looker.look() and "slow" in errors(), "it is said")
    assert errors()["slow"].startswith("Its code has not returned for")
    going.set()
    assert looker.look(minutes=1) == ["fine"] * 2
    assert errors() == {"slow": "SystemExit: 7"}


def test_calls_that_do_not_return_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(host_code, "WAIT", 0.0)
    going = threading.Event()
    code = host_code.HostCode()
    for number in range(host_code.MOST_CALLS):
        with pytest.raises(host_code.NotReturned):
            code.ask(number, lambda: going.wait(30))
    with pytest.raises(host_code.NotReturned, match="the code of 20 others has not returned") as raised:
        code.ask("one more", lambda: 1)
    assert raised.value.late
    going.set()
    monkeypatch.setattr(host_code, "FORGOTTEN", 0.0)
    eventually(lambda: all(call.returned.is_set() for call in code._calls.values()), "they have returned")
    time.sleep(0.001)
    monkeypatch.setattr(host_code, "WAIT", 30.0)
    assert code.ask("one more", lambda: 1) == 1
