"""The page of recurring tasks: what ran last and how it ended, what is next, run now, pause."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from django_leasequeue import engine
from django_leasequeue.engine import Ending
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.engine.pool import connect
from django_leasequeue.models import OperatorAction, RecurringTask, StoredJob
from django_leasequeue.reaper import Turn
from django_leasequeue.reaper.recurring.declared import sync
from django_leasequeue.reaper.recurring.duty import RecurringDuty
from tests.admin.pages import Page, messages
from tests.admin.people import signed_in
from tests.engine.helpers import NODE, claim

pytestmark = pytest.mark.usefixtures("transactional_db")

REPORT = "tests.reaper.recurring.tasks.report"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def client() -> Client:
    return signed_in("view_recurringtask", "change_recurringtask", "view_job")


def made(name: str = "report", **fields: Any) -> RecurringTask:
    values = {"name": name, "schedule": "0 * * * *", "task": REPORT, "args": [name], **fields}
    return RecurringTask.objects.create(**values)


def tick() -> None:
    with connect("default") as own:
        RecurringDuty()(Turn(own, "default"))


def shown(client: Client) -> str:
    answer = client.get(reverse("admin:leasequeue_recurringtask_changelist"))
    page = Page(answer.content.decode())
    assert (answer.status_code, page.inline) == (200, [])
    return page.text


def act(client: Client, task: RecurringTask, action: str) -> str:
    url = reverse("admin:leasequeue_recurringtask_changelist")
    answer = client.post(url, {"action": action, "_selected_action": task.pk}, follow=True)
    assert answer.status_code == 200
    return messages(answer)


def test_last_and_next_ticks_and_how_the_last_one_ended(clock: engine_clock.Clock, client: Client) -> None:
    made()
    assert "never" in shown(client)
    tick()
    clock.advance(hours=1)
    tick()
    (seq,) = StoredJob.objects.values_list("pk", flat=True)
    text = shown(client)
    assert f"2030-01-01 13:00:00.000 {seq} ready 2030-01-01 14:00:00.000 (in 1 h)" in text
    (job,) = claim(queue="default")
    assert f"{seq} leased" in shown(client)
    engine.run(engine.finish([Ending(job.seq, job.token)], NODE))
    assert f"{seq} completed" in shown(client)
    clock.advance(hours=1)
    tick()
    assert f"{max(StoredJob.objects.values_list('pk', flat=True))} ready" in shown(client)


def test_what_is_overdue_is_said_on_top(clock: engine_clock.Clock, client: Client) -> None:
    made()
    tick()
    clock.advance(hours=1, seconds=30)
    assert "overdue" not in shown(client)
    clock.advance(seconds=60)
    assert "report is overdue since 1 min 30 s" in shown(client)


def test_run_now_enqueues_one_and_leaves_the_ticks(clock: engine_clock.Clock, client: Client) -> None:
    task = made()
    tick()
    assert "report was enqueued" in act(client, task, "run")
    assert [job.data["args"] for job in StoredJob.objects.all()] == [["report"]]
    task.refresh_from_db()
    assert (task.last_tick_at, task.next_tick_at) == (None, NOON + timedelta(hours=1))
    assert OperatorAction.objects.get().action == "run_recurring"


def test_what_cannot_be_enqueued_says_why(clock: engine_clock.Clock, client: Client) -> None:
    assert "there is no task at 'no.such.task'" in act(client, made(task="no.such.task"), "run")
    assert not OperatorAction.objects.exists()


def test_a_paused_task_does_not_run_until_it_goes_on(clock: engine_clock.Clock, client: Client) -> None:
    task = made()
    tick()
    assert "is paused" in act(client, task, "pause")
    clock.advance(hours=1)
    tick()
    assert not StoredJob.objects.exists()
    assert "report paused" in shown(client)
    act(client, task, "resume")
    tick()
    assert not StoredJob.objects.exists(), "what was missed is not made up for"
    clock.advance(hours=1)
    tick()
    assert StoredJob.objects.count() == 1


def test_the_settings_do_not_undo_a_pause(clock: engine_clock.Clock, client: Client, settings: Any) -> None:
    settings.LEASEQUEUE = {"RECURRING": {"report": {"task": REPORT, "schedule": "0 * * * *", "args": ["report"]}}}
    engine.run(sync())
    task = RecurringTask.objects.get()
    act(client, task, "pause")
    engine.run(sync())
    task.refresh_from_db()
    assert task.enabled is False
    act(client, task, "resume")
    settings.LEASEQUEUE["RECURRING"]["report"]["schedule"] = "30 * * * *"
    settings.LEASEQUEUE = dict(settings.LEASEQUEUE)
    engine.run(sync())
    task.refresh_from_db()
    assert (task.enabled, task.from_settings, task.schedule) == (True, True, "30 * * * *")


def test_who_may_only_look_cannot_act(clock: engine_clock.Clock) -> None:
    task = made()
    viewer = signed_in("view_recurringtask", name="viewer")
    assert "Run the selected" not in shown(viewer)
    for action in ("run", "pause", "resume"):
        act(viewer, task, action)
    task.refresh_from_db()
    assert (task.enabled, StoredJob.objects.count(), OperatorAction.objects.count()) == (True, 0, 0)
    stranger = signed_in("view_job", name="stranger")
    assert stranger.get(reverse("admin:leasequeue_recurringtask_changelist")).status_code == 403
