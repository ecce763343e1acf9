"""Tests of hosts freeze Python's clocks, as freezegun and time-machine do: delays and waits do not mind."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection

from django_leasequeue import Queue
from django_leasequeue.engine import clock
from django_leasequeue.exceptions import WaitTimeout
from django_leasequeue.tasks import group
from tests.tasks import samples
from tests.tasks.helpers import claim, run_one

pytestmark = pytest.mark.django_db


class Frozen(datetime):
    """A class whose present is long ago."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime(2001, 1, 1, tzinfo=tz)


@pytest.fixture(autouse=True)
def _frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """freezegun stops the monotonic clock as well."""
    monkeypatch.setattr(clock, "datetime", Frozen)
    for name, value in (("time", 978_307_200.0), ("monotonic", 5.0), ("perf_counter", 5.0)):
        monkeypatch.setattr(time, name, lambda value=value: value)


def left() -> timedelta:
    with connection.cursor() as cursor:
        cursor.execute("SELECT available_at - clock_timestamp() FROM leasequeue_delayed")
        ((found,),) = cursor.fetchall()
    return found


@pytest.mark.parametrize("enqueue", [
    lambda later: later.enqueue(1), lambda later: async_to_sync(later.aenqueue)(1),
    lambda later: later.enqueue_many([(1,)])[0],
], ids=["enqueue", "aenqueue", "enqueue_many"])  # fmt: skip
def test_the_database_counts_a_delay(enqueue: Callable[[Any], Any]) -> None:
    result = enqueue(samples.add.using(run_after=timedelta(hours=1)))
    assert timedelta(minutes=59) < left() <= timedelta(hours=1)
    assert run_one() is None
    shown = result.enqueued_at + timedelta(hours=1)
    assert (result.task.run_after, samples.add.get_result(result.id).task.run_after) == (shown, shown)


def test_the_database_counts_the_delay_of_a_workflows_step() -> None:
    group(samples.add.using(run_after=3_600).si(1)).enqueue()
    assert timedelta(minutes=59) < left() <= timedelta(hours=1)


def test_a_time_stays_the_time_that_was_given() -> None:
    samples.add.using(run_after=datetime(2001, 1, 1, 1, tzinfo=UTC)).enqueue(1)
    assert run_one() == "completed"


def test_the_database_counts_the_delay_of_a_rescheduled_task_and_of_a_retry() -> None:
    later = samples.add.using(key="once", on_conflict="reschedule", run_after=timedelta(hours=1))
    later.enqueue(1)
    later.using(run_after=timedelta(hours=3)).enqueue(1)
    assert timedelta(minutes=179) < left() <= timedelta(hours=3)


@pytest.mark.parametrize("wait", [
    lambda result: result.wait(0.3), lambda result: Queue("default").enqueue_and_wait({}, timeout=0.3),
    lambda result: group(samples.add.si(1)).enqueue().wait(0.3),
], ids=["wait", "enqueue_and_wait", "a workflow"])  # fmt: skip
@pytest.mark.django_db(transaction=True)
def test_a_wait_is_over_in_time(wait: Callable[[Any], Any]) -> None:
    result = samples.add.enqueue(1)
    claim()
    with pytest.raises(WaitTimeout):
        wait(result)
