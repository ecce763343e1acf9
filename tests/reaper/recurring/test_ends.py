"""Schedules that end (``until``, ``times``), ticks that are shifted (``phase``), runs that are spread (``jitter``)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import Job, RecurringTask, StoredJob
from django_leasequeue.models.recurring import parse
from django_leasequeue.reaper.concerns import recurring_problems
from django_leasequeue.reaper.declarations import check, sync
from tests.reaper.recurring.support import NOON, REPORT, Looker, begun, made, next_tick
from tests.support.commands import said

pytestmark = pytest.mark.usefixtures("transactional_db")

HOUR = timedelta(hours=1)


def hours(clock: Clock, number: int, looker: Looker | None = None) -> list[Any]:
    """Look each hour; return the jobs."""
    looker = looker or Looker()
    found = looker.look()
    for _ in range(number):
        found = looker.look(hours=1)
    return found


def test_the_last_tick_is_the_one_at_until(clock: Clock) -> None:
    made(until=NOON + 2 * HOUR)
    made("short", until=NOON + HOUR / 2)
    assert hours(clock, 4) == ["report"] * 2
    row = RecurringTask.objects.get(name="report")
    assert (row.last_tick_at, row.next_tick_at, row.ended_at) == (NOON + 2 * HOUR, None, NOON + 2 * HOUR)
    assert (row.enabled, row.runs) == (True, 2)
    assert RecurringTask.objects.get(name="short").ended_at == NOON


def test_a_late_reaper_enqueues_the_newest_tick_up_to_until(clock: Clock) -> None:
    made(until=NOON + HOUR * 3 / 2, grace=86_400)
    Looker().look()
    assert Looker().look(hours=5) == ["report"]
    row = RecurringTask.objects.get()
    assert (row.last_tick_at, row.ended_at) == (NOON + HOUR, NOON + 5 * HOUR)


def test_times_counts_the_runs_that_were_enqueued(clock: Clock) -> None:
    made(times=2, grace=60)
    looker = begun()
    assert looker.look(hours=1, minutes=10) == [], "a tick that was skipped is no run"
    clock.advance(minutes=50)
    assert hours(clock, 3, looker) == ["report"] * 2
    row = RecurringTask.objects.get()
    assert (row.runs, row.ended_at, row.next_tick_at) == (2, NOON + 3 * HOUR, None)


def test_more_times_or_a_later_until_let_it_go_on(clock: Clock) -> None:
    row = made(times=1, until=NOON + 9 * HOUR)
    assert hours(clock, 3) == ["report"]
    row.refresh_from_db()
    row.times = 2
    row.save()
    row.refresh_from_db()
    assert row.ended_at is None
    assert hours(clock, 3) == ["report"] * 2
    RecurringTask.objects.update(enabled=False)
    RecurringTask.objects.update(enabled=True)
    assert hours(clock, 2) == ["report"] * 2, "whoever enables it again gives it no more runs"
    assert RecurringTask.objects.get().ended_at is not None


def test_one_that_ended_stays_ended_when_the_settings_are_synced(clock: Clock, settings: Any) -> None:
    task = {"task": REPORT, "args": ["report"], "schedule": "0 * * * *", "times": 1, "until": NOON + 9 * HOUR}
    settings.LEASEQUEUE = {"RECURRING": {"report": task}}
    assert engine.run(sync("default")).made == ["report"]
    assert hours(clock, 2) == ["report"]
    assert engine.run(sync("default")).changed == []
    assert hours(clock, 2) == ["report"]
    settings.LEASEQUEUE = {"RECURRING": {"report": {**task, "times": 2}}}
    assert engine.run(sync("default")).changed == ["report"]
    assert hours(clock, 3) == ["report"] * 2


def test_one_that_follows_its_queue_to_another_database_keeps_its_end_and_its_runs(
    far: str, clock: Clock, settings: Any
) -> None:
    settings.LEASEQUEUE = {"DATABASES": ["default", far], "ROUTER": "tests.reaper.recurring.test_recurring.by_name"}
    made(times=2, jitter=5, phase=60, schedule="every hour", expires=900)
    assert hours(clock, 1) == ["report"]
    RecurringTask.objects.update(queue_name="bulk")
    Looker().look()
    assert not RecurringTask.objects.exists()
    assert hours(clock, 3, Looker(far)) == ["report"]
    row = RecurringTask.objects.using(far).get()
    assert (row.runs, row.times, row.jitter, row.phase, row.expires) == (2, 2, 5, 60, 900)
    assert row.ended_at is not None


def test_the_status_says_that_it_ended_and_it_is_no_problem(clock: Clock) -> None:
    made(times=1)
    hours(clock, 3)
    line = next(line for line in said("leasequeue_status").splitlines() if line.strip().startswith("report"))
    assert line.endswith("ended")
    RecurringTask.objects.update(last_error="its last tick was skipped")
    assert recurring_problems("default") == []


def test_a_phase_shifts_the_ticks_of_an_interval(clock: Clock) -> None:
    made(schedule="every hour", phase=600)
    Looker().look()
    assert next_tick() == NOON + timedelta(minutes=10)
    assert Looker().look(minutes=10) == ["report"]
    assert next_tick() == NOON + timedelta(minutes=70)
    RecurringTask.objects.update(phase=0)
    Looker().look()
    assert next_tick() == NOON + HOUR
    weekly = parse("every 7 days", "UTC", 4 * 86_400)
    assert weekly.next(NOON) == datetime(2030, 1, 7, tzinfo=UTC), "a Monday"


def test_jitter_delays_each_run_by_another_time(clock: Clock) -> None:
    made(jitter=600)
    made("expiring", jitter=600, expires=60)
    looker = begun()
    delays = set()
    for _ in range(8):
        looker.look(hours=1)
        for job in Job.objects.filter(enqueued_at=clock.now):
            assert clock.now < job.available_at <= clock.now + timedelta(minutes=10)
            delays.add(job.available_at - clock.now)
            if job.data["args"] == ["expiring"]:
                assert job.expires_at == job.available_at + timedelta(minutes=1), "it expires after its delay"
    assert len(delays) == 16
    assert RecurringTask.objects.get(name="report").last_tick_at == NOON + 8 * HOUR


def test_a_run_that_does_not_start_in_time_expires(clock: Clock) -> None:
    row = made(expires=60)
    hours(clock, 1)
    row.expires = 120
    row.save()
    hours(clock, 1)
    first, second = StoredJob.objects.order_by("pk")
    assert (first.expires_at - first.created_at, second.expires_at - second.created_at) == (
        timedelta(minutes=1), timedelta(minutes=2),
    )  # fmt: skip


@pytest.mark.parametrize(("given", "words"), [
    ({"until": NOON.replace(tzinfo=None)}, "until must be a datetime with a time zone"),
    ({"until": "2031-01-01"}, "until must be a datetime"), ({"phase": 60}, "phase belongs to an interval"),
    ({"times": 0}, "times must be an integer from 1 to"), ({"times": HOUR}, "times must be an integer"),
    ({"jitter": -1}, "jitter must be whole seconds from 0 to 86,400"), ({"expires": 0}, "expires must be"),
    ({"phase": 60, "schedule": "every minute"}, "phase must be less than the 60 seconds"),
    ({"phase": -1, "schedule": "every minute"}, "phase must be whole seconds"),
    ({"schedule": "now and then"}, "now and then"), ({"timezone": "Mars"}, "timezone must be a name"),
    ({"task": ""}, "task must be a text"), ({"name": "\ud800"}, "name must be a text"),
    ({"name": "\x00"}, "name must be a text"), ({"queue_name": "\ud800"}, "queue_name must be a text"),
    ({"queue_name": None}, "queue_name must be"), ({"priority": "high"}, "priority must be"),
    ({"args": {"a": 1}}, "args must be a list"), ({"args": "ab"}, "args must be a list"),
    ({"args": [object()]}, "args must be JSON"), ({"kwargs": {"x": float("nan")}}, "kwargs must be JSON"),
])  # fmt: skip
def test_settings_and_model_refuse_the_same(given: dict[str, Any], words: str) -> None:
    options = {"name": "report", "task": REPORT, "schedule": "0 * * * *", **given}
    with pytest.raises(InvalidOption) as error:
        check(str(options.pop("name")), options)
    assert words in str(error.value)
    refused(given, words)


def test_a_declared_time_is_seconds_or_a_timedelta() -> None:
    found = check("report", {"task": REPORT, "schedule": "every day", "phase": HOUR, "jitter": HOUR, "expires": 3_600})
    assert (found.phase, found.jitter, found.expires) == (3_600, 3_600, 3_600)


@pytest.mark.parametrize("value", [float("nan"), "\x00", "\ud800", ["\ud800"], {"\x00": 1}])
def test_the_model_refuses_what_enqueue_refuses(value: Any) -> None:
    with pytest.raises(InvalidOption) as error:
        engine.run(engine.enqueue("default", [engine.NewJob({"args": [value]})]))
    words = str(error.value).removeprefix("data").partition(" in position")[0]
    refused({"args": [value]}, "args" + words)
    refused({"kwargs": {"named": value}}, "kwargs" + words)


def refused(given: dict[str, Any], words: str) -> None:
    values = {"name": "report", "schedule": "0 * * * *", "task": REPORT, **given}
    with pytest.raises(InvalidOption) as error:
        RecurringTask.objects.create(**values)
    assert words in str(error.value)
    assert not RecurringTask.objects.exists()
    with pytest.raises(ValidationError) as invalid:
        RecurringTask(**values).full_clean()
    assert words in " ".join(invalid.value.messages)


def test_a_bad_row_that_sql_has_made_can_be_switched_off() -> None:
    row = made(schedule="now and then")
    row.paused = True
    row.save(update_fields=["paused"])
    with pytest.raises(InvalidOption, match="now and then"):
        row.save()
