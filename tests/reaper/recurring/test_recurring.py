"""Recurring tasks: each tick once whoever looks, nothing made up for, settings and database, and what goes wrong."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, connections

from django_leasequeue import engine
from django_leasequeue.engine.operation import operation
from django_leasequeue.engine.pool import connect
from django_leasequeue.engine.queues import moving
from django_leasequeue.models import RecurringTask, StoredJob
from django_leasequeue.reaper import DutyRun, concerns, status, ticks
from django_leasequeue.reaper import declarations as declared
from django_leasequeue.reaper.recurring import RecurringDuty
from django_leasequeue.reaper.ticks import DueTask, Tick, job_of, take_ticks
from tests.engine.helpers import run
from tests.reaper.recurring.support import NOON, REPORT, Looker, begun, jobs, made, next_tick
from tests.support.commands import said

pytestmark = pytest.mark.usefixtures("transactional_db")


@contextmanager
def breaking_enqueues() -> Iterator[None]:
    """Let the connection break right behind each enqueue."""
    enqueue = ticks.enqueue_templates

    @operation
    def broken(jobs: Any) -> Any:
        yield from enqueue(jobs)
        raise OperationalError("the connection broke")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ticks, "enqueue_templates", broken)
        yield


def test_each_tick_is_enqueued_once(clock) -> None:
    made()
    looker = Looker()
    assert looker.look() == [], "it begins with the next tick"
    assert next_tick() == NOON + timedelta(hours=1)
    assert looker.look(minutes=59, seconds=59) == []
    assert looker.look(seconds=1) == ["report"]
    assert looker.look() == ["report"]
    row = RecurringTask.objects.get()
    assert (row.last_tick_at, row.next_tick_at) == (NOON + timedelta(hours=1), NOON + timedelta(hours=2))
    assert looker.look(hours=1) == ["report"] * 2


def test_what_was_missed_is_made_up_for_by_one_run(clock) -> None:
    made()
    made("often", "every 10 seconds")
    Looker().look()
    assert sorted(Looker().look(days=3, minutes=30)) == ["often", "report"]
    assert RecurringTask.objects.get(name="report").last_tick_at == NOON + timedelta(days=3)
    assert next_tick() == NOON + timedelta(days=3, hours=1)
    assert next_tick("often") == clock.now + timedelta(seconds=10)
    assert sorted(Looker().look()) == ["often", "report"]


def test_one_run_per_tick_however_many_look_at_the_same_time(clock) -> None:
    made()
    Looker().look()
    clock.advance(hours=1)

    def look(_: int) -> None:
        try:
            Looker().look()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(look, range(8)))
    assert jobs() == ["report"]
    row, following = RecurringTask.objects.get(), NOON + timedelta(hours=2)

    def taken(at: datetime) -> bool:
        job = job_of(DueTask(row.task, '["report"]', "{}", "", "", None, None))
        return bool(take_ticks("default", [Tick(row.pk, row.name, at, at + timedelta(hours=1), job)])[0])

    assert not taken(NOON + timedelta(hours=1)), "who comes second"
    assert not taken(NOON)
    assert taken(following)
    assert jobs() == ["report"] * 2


def test_the_tick_is_not_taken_when_the_enqueue_is_rolled_back(clock) -> None:
    row = made()
    looker = begun()
    clock.advance(hours=1)
    with breaking_enqueues(), pytest.raises(OperationalError):
        looker.look()
    assert jobs() == []
    row.refresh_from_db()
    assert row.last_tick_at is None
    assert looker.look() == ["report"]


TASKS = "tests.reaper.recurring.tasks"


@pytest.mark.parametrize(("fields", "error"), [
    ({"task": "tests.reaper.recurring.exits.gone"}, "SystemExit: 7"),
    ({"task": f"{TASKS}.missing"}, "InvalidOption: task must be the path of a task; it is 'tests.reaper"),
    ({"task": "no.such.module"}, "is not below the installed apps"), ({"backend": "nowhere"}, "nowhere"),
    ({"task": f"{TASKS}.plain"}, "is none: decorate"), ({"task": f"{TASKS}.placed", "args": [1]}, ""),
])  # fmt: skip
def test_what_cannot_be_enqueued_is_told_once_a_tick_and_stops_no_other(clock, caplog, fields, error) -> None:
    row = made("broken", **fields)
    made("fine")
    looker = begun()
    looker.look(hours=1)
    looker.look()
    assert "fine" in jobs()
    assert next_tick("broken") == NOON + timedelta(hours=2)
    if not error:
        return
    row.refresh_from_db()
    assert (error in row.last_error, row.failed_at) == (True, clock.now)
    assert caplog.text.count("Recurring task broken could not be enqueued; its tick of") == 1
    assert error in caplog.text
    problem = f"Recurring task broken was not enqueued: {row.last_error}"
    assert problem in status.read_status("default").problems
    assert problem in said("leasequeue_status")
    RecurringTask.objects.filter(name="broken").update(task=REPORT, backend="default", args=[])
    looker.look(hours=1)
    assert RecurringTask.objects.get(name="broken").last_error == "", "until a tick was enqueued"


def test_a_schedule_that_cannot_be_read_is_told_once(clock, caplog) -> None:
    row = made("wrong", "61 * * * *")
    made("zone", timezone="Mars/Olympus")
    made("fine", "every minute")
    looker = Looker()
    for _ in range(3):
        looker.look()
        clock.advance(minutes=1)
    assert jobs() == ["fine"] * 2
    assert caplog.text.count("Recurring task wrong does not run") == 1
    assert caplog.text.count("Recurring task zone does not run") == 1
    problem = "Recurring task wrong was not enqueued: '61 * * * *' is not a schedule"
    assert any(text.startswith(problem) for text in concerns.recurring_problems("default"))
    RecurringTask.objects.filter(pk=row.pk).update(schedule="*/1 * * * *")
    looker.look()
    assert "wrong" in looker.look(minutes=1)


def test_a_new_schedule_holds_from_now_on(clock) -> None:
    row = made(schedule="@yearly")
    looker = begun()
    RecurringTask.objects.filter(pk=row.pk).update(schedule="every minute")
    assert looker.look() == []
    assert next_tick() == NOON + timedelta(minutes=1)
    assert looker.look(minutes=1) == ["report"]
    # A tick of the old schedule that has come meanwhile is none of the new one.
    RecurringTask.objects.filter(pk=row.pk).update(schedule="30 5 * * *", next_tick_at=clock.now)
    assert looker.look() == ["report"]
    assert next_tick() == datetime(2030, 1, 2, 5, 30, tzinfo=UTC)


def test_what_is_disabled_does_not_run_and_makes_nothing_up_for(clock) -> None:
    row = made(enabled=False)
    looker = begun()
    assert looker.look(hours=5) == []
    RecurringTask.objects.filter(pk=row.pk).update(enabled=True)
    looker.look()
    assert looker.look(hours=1) == ["report"]
    RecurringTask.objects.filter(pk=row.pk).update(enabled=False)
    looker.look(hours=5)
    RecurringTask.objects.filter(pk=row.pk).update(enabled=True)
    assert looker.look() == ["report"]
    assert next_tick() == clock.now + timedelta(hours=1)


def test_where_and_how_it_is_enqueued(clock) -> None:
    made("plain", "every minute", args=[1, "two"], kwargs={"three": [3]})
    placed = {"task": "tests.reaper.recurring.tasks.placed", "args": []}
    made("placed", "every minute", **placed)
    made("moved", "every minute", **placed, queue_name="mail", priority=-7, backend="")
    looker = begun()
    looker.look(minutes=1)
    found = {(job.queue.name, job.name, job.rank): job for job in StoredJob.objects.select_related("queue")}
    assert set(found) == {
        ("default", REPORT, 0),
        ("elsewhere", "tests.reaper.recurring.tasks.placed", -5),
        ("mail", "tests.reaper.recurring.tasks.placed", 7),
    }
    assert found["default", REPORT, 0].data == {"args": [1, "two"], "kwargs": {"three": [3]}}


def declare(settings: Any, **tasks: Any) -> None:
    settings.LEASEQUEUE = {"RECURRING": tasks}


def sync() -> declared.Synced:
    return engine.run(declared.sync("default"))


def test_the_settings_are_carried_over_to_the_table(settings, clock) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    fields = {"timezone": "UTC", "args": ["b"], "kwargs": {"x": 1}, "queue_name": "mail", "priority": 3}
    b = {"task": REPORT, "schedule": timedelta(minutes=5), **fields, "backend": "default", "enabled": False}
    declare(settings, a={"task": REPORT, "schedule": "@daily"}, b=b)
    assert sync().made == ["a", "b"]
    assert sync() == ([], [], [], [], [], {})
    first, second = RecurringTask.objects.order_by("name")
    assert (first.schedule, first.timezone, first.args) == ("@daily", "Europe/Berlin", [])
    assert (first.enabled, first.from_settings, second.enabled) == (True, True, False)
    found = (second.schedule, second.kwargs, second.queue_name, second.priority)
    assert found == ("every 300 seconds", {"x": 1}, "mail", 3)
    declare(settings, b={"task": REPORT, "schedule": "every 10 minutes"})
    outcome = sync()
    assert (outcome.changed, outcome.disabled) == (["b"], ["a"])
    assert not RecurringTask.objects.get(name="a").enabled
    declare(settings, a={"task": REPORT, "schedule": "@daily"})
    assert (sync().changed, RecurringTask.objects.get(name="a").enabled) == (["a"], True)


def test_migrate_carries_them_over(settings, caplog) -> None:
    made("mine", "@weekly")
    declare(settings, mine={"task": REPORT, "schedule": "@daily"}, ours={"task": REPORT, "schedule": "@daily"})
    call_command("migrate", verbosity=0)
    assert set(RecurringTask.objects.values_list("name", "schedule")) == {("mine", "@weekly"), ("ours", "@daily")}
    assert "Recurring task mine was made in the database" in caplog.text
    run("ALTER TABLE leasequeue_recurringtask RENAME COLUMN schedule TO cron")
    try:
        declared.on_migrate("default")
        assert "not those of this version" in caplog.text
        run("ALTER TABLE leasequeue_recurringtask RENAME TO elsewhere")
        declared.on_migrate("default")
    finally:
        run("ALTER TABLE IF EXISTS elsewhere RENAME TO leasequeue_recurringtask")
        run("ALTER TABLE leasequeue_recurringtask RENAME COLUMN cron TO schedule")
    declared.on_migrate("another")


def test_a_wrong_declaration_stops_no_other(settings, clock, caplog) -> None:
    declare(settings, bad={"task": REPORT, "schedule": "nonsense"}, good={"task": REPORT, "schedule": "every minute"})
    with connect("default") as own:
        assert RecurringDuty()(DutyRun(own, "another")) is False
    declared.on_migrate("default")
    assert [row.name for row in RecurringTask.objects.all()] == ["good"]
    assert "Recurring task bad of the settings is not used" in caplog.text
    declare(settings, good={"task": REPORT, "schedule": "nonsense"})
    assert sync().disabled == [], "what became wrong goes on as it was"


@pytest.mark.parametrize(("given", "message"), [
    ({"schedule": "@daily"}, "'task' is missing"), ({"task": REPORT}, "'schedule' is missing"),
    ({"task": REPORT, "schedule": "@daily", "cron": 1}, "one is 'cron'"),
    ({"task": REPORT, "schedule": 5}, "schedule must be a text"),
    ({"task": REPORT, "schedule": timedelta(seconds=0.5)}, "whole seconds"),
    ({"task": REPORT, "schedule": timedelta(0)}, "from a second"),
    ({"task": REPORT, "schedule": "@daily", "times": True}, "times must be an integer"),
    ({"task": REPORT, "schedule": "@daily", "jitter": 1.5}, "jitter must be"),
    ({"task": REPORT, "schedule": "@daily", "enabled": 1}, "enabled must be"),
])  # fmt: skip
def test_what_a_declaration_must_be(settings, given, message) -> None:
    declare(settings, task=given)
    outcome = sync()
    assert message in outcome.invalid["task"]
    assert not RecurringTask.objects.exists()


def test_the_connection_of_django_is_used_for_due_ticks_only(clock) -> None:
    made("berlin", "30 2 * * *", timezone="Europe/Berlin")
    Looker().look()
    assert next_tick("berlin") == datetime(2030, 1, 2, 1, 30, tzinfo=UTC)
    connection.close()
    with connect("default") as own:
        duty = RecurringDuty()
        for _ in range(3):
            duty(DutyRun(own, "default"))
    assert connection.connection is None


def by_name(project: str, queue: str) -> str:
    return "far" if queue == "bulk" else "default"


HOURLY = {"task": REPORT, "schedule": "0 * * * *"}


@pytest.fixture
def near_and_far(far: str, settings: Any, clock: Any) -> tuple[Looker, Looker]:
    """The reapers of two databases, with a recurring task of the settings in each."""
    tasks = {"near": {**HOURLY, "args": ["near"]}, "bulk": {**HOURLY, "args": ["bulk"], "queue_name": "bulk"}}
    spread = {"DATABASES": ["default", "far"], "ROUTER": f"{__name__}.by_name", "RECURRING": tasks}
    settings.LEASEQUEUE = spread
    for alias in ("default", "far"):
        declared.on_migrate(alias)
    return Looker(), Looker("far")


def kept(alias: str) -> dict[str, tuple[bool, datetime | None]]:
    return {row.name: (row.enabled, row.last_tick_at) for row in RecurringTask.objects.using(alias).order_by("name")}


def test_each_database_has_the_recurring_tasks_of_its_queues(near_and_far, clock) -> None:
    near, far = near_and_far
    assert (near.look(), far.look(), list(kept("default")), list(kept("far"))) == ([], [], ["near"], ["bulk"])
    clock.advance(hours=1)
    assert (near.look(), far.look()) == (["near"], ["bulk"])
    row = RecurringTask.objects.using("far").get()
    assert StoredJob.objects.using("far").get(pk=row.last_seq).data["args"] == ["bulk"]
    clock.advance(hours=1)
    with breaking_enqueues(), pytest.raises(OperationalError):
        far.look()
    assert (jobs("far"), kept("far")["bulk"][1]) == (["bulk"], row.last_tick_at), "the tick and its job, or neither"
    assert far.look() == ["bulk"] * 2


def test_a_recurring_task_follows_its_queue(near_and_far, clock) -> None:
    near, far = near_and_far
    for name in ("mail", "paused"):
        made(name, queue_name="mail")
    made("stray", queue_name="bulk")
    near.look()
    RecurringTask.objects.filter(name="paused").update(enabled=False)
    assert (list(kept("default")), list(kept("far"))) == (["mail", "near", "paused"], ["bulk", "stray"])
    clock.advance(hours=1)
    assert sorted(near.look()) == ["mail", "near"]
    far.look()
    moving.move("mail", "far")
    clock.advance(hours=1)
    near, again = Looker(), Looker()
    for looker in (near, again):
        assert sorted(looker.look()) == ["mail", "near", "near"]
    assert list(kept("default")) == ["near"]
    assert kept("far")["mail"] == (True, NOON + timedelta(hours=1))
    assert kept("far")["paused"] == (False, None)
    assert sorted(far.look()) == ["bulk", "mail", "stray"], "the tick that was due when it moved, once"
    assert kept("far")["mail"] == (True, NOON + timedelta(hours=2))


def test_names_and_servers_in_the_way(near_and_far, clock, caplog) -> None:
    near, far = near_and_far
    far.look()
    made("bulk", "every minute", queue_name="bulk", args=["another"])
    for _ in range(2):
        assert near.look() == []
        clock.advance(minutes=1)
    assert caplog.text.count("has another recurring task of that name") == 1
    RecurringTask.objects.filter(name="bulk").update(name="stray")
    clock.advance(hours=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connections["far"].settings_dict, "NAME", "nowhere")
        assert near.look() == ["near"], "a server that is away stops no task of another"
    assert caplog.text.count("cannot move to the database") == 1
    assert near.look() == ["near"]
    assert "stray" in kept("default"), "it is not tried again at once"
    near = Looker()
    near.look()
    assert list(kept("far")) == ["bulk", "stray"]
