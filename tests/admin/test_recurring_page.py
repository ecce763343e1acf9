"""The page of recurring tasks: what ran last and how it ended, what is next, run now, pause."""

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.pool import connect
from django_leasequeue.models import OperatorAction, RecurringTask, StoredJob
from django_leasequeue.reaper import DutyRun
from django_leasequeue.reaper.declarations import sync
from django_leasequeue.reaper.recurring import RecurringDuty
from tests.admin.letters import end
from tests.admin.pages import Page, admin_url, look, read, signed_in, told
from tests.engine.helpers import claim

pytestmark = pytest.mark.usefixtures("transactional_db")
client = pytest.fixture(lambda: signed_in("view_recurringtask", "change_recurringtask", "view_job"))

REPORT = "tests.reaper.recurring.tasks.report"
PLACED = "tests.reaper.recurring.tasks.placed"
PRIVATE = "tests.reaper.recurring.tasks.private"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def made(name: str = "report", **fields: Any) -> RecurringTask:
    values = {"name": name, "schedule": "0 * * * *", "task": REPORT, "args": [name], **fields}
    (task,) = RecurringTask.objects.bulk_create([RecurringTask(**values)])  # unchecked, as SQL may make it
    return task


def tick() -> None:
    with connect("default") as own:
        RecurringDuty()(DutyRun(own, "default"))


def shown(client: Client) -> str:
    return look(client, "recurringtask_changelist").text


def act(client: Client, task: RecurringTask, action: str) -> str:
    return told(client, "recurringtask_changelist", action=action, _selected_action=task.pk)


def test_last_and_next_ticks_how_the_last_one_ended_and_what_is_overdue(clock: Clock, client: Client) -> None:
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
    end(job)
    assert f"{seq} completed" in shown(client)
    clock.advance(hours=1, seconds=30)
    assert "overdue" not in shown(client)
    clock.advance(seconds=60)
    assert "report is 1 min 30 s overdue" in shown(client)
    tick()
    assert f"{max(StoredJob.objects.values_list('pk', flat=True))} ready" in shown(client)


def test_run_now_enqueues_one_and_leaves_the_ticks_or_says_why_not(clock: Clock, client: Client) -> None:
    assert "The task 'no.such.task' is not imported" in act(client, made("wrong", task="no.such.task"), "run")
    assert not OperatorAction.objects.exists()
    task = made()
    tick()
    assert "report was enqueued" in act(client, task, "run")
    assert [job.data["args"] for job in StoredJob.objects.all()] == [["report"]]
    task.refresh_from_db()
    assert (task.last_tick_at, task.next_tick_at) == (None, NOON + timedelta(hours=1))
    assert OperatorAction.objects.get().action == "run_recurring"


def test_a_paused_task_does_not_run_until_it_goes_on(clock: Clock, client: Client) -> None:
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


class TestForm:
    NEW: ClassVar = {
        "name": "night", "task": REPORT, "schedule": "30 2 * * *", "timezone": "Europe/Berlin", "args": '["night"]',
        "kwargs": "", "queue_name": "", "priority": "", "backend": "", "phase": "0", "jitter": "0", "enabled": "on",
    }  # fmt: skip

    @pytest.fixture
    def editor(self) -> Client:
        every = ("view_recurringtask", "add_recurringtask", "change_recurringtask", "delete_recurringtask", "view_job")
        return signed_in(*every, name="editor")

    def save(self, client: Client, changes: RecurringTask | None = None, **fields: str) -> str:
        url = admin_url("recurringtask_change", changes.pk) if changes else admin_url("recurringtask_add")
        assert client.get(url).status_code == 200
        return read(client.post(url, {**self.NEW, **fields}, follow=True)).text

    def test_one_is_added_changed_and_deleted(self, clock: Clock, editor: Client) -> None:
        assert "was added" in self.save(editor)
        task = RecurringTask.objects.get()
        assert (task.args, task.kwargs, task.backend, task.from_settings) == (["night"], {}, "", False)
        tick()
        task.refresh_from_db()
        assert task.next_tick_at == datetime(2030, 1, 2, 1, 30, tzinfo=UTC)
        text = self.save(editor, task, args='["other"]', schedule="every 30 minutes", queue_name="later")
        assert "was changed" in text
        task.refresh_from_db()
        assert (task.schedule, task.args, task.next_tick_at) == ("every 30 minutes", ["other"], None)
        clock.advance(hours=1)
        tick()
        clock.advance(hours=1)
        tick()
        assert [(job.queue.name, job.data["args"]) for job in StoredJob.objects.all()] == [("later", ["other"])]
        editor.post(admin_url("recurringtask_delete", task.pk), {"post": "yes"})
        assert not RecurringTask.objects.exists()
        told = {line.action: line.detail for line in OperatorAction.objects.all()}
        assert set(told) == {"add_recurring", "edit_recurring", "delete_recurring"}
        assert told["edit_recurring"]["changed"] == {
            "args": ["changed"], "schedule": ["30 2 * * *", "every 30 minutes"], "queue_name": ["", "later"],
        }  # fmt: skip

    @pytest.mark.parametrize(("fields", "words"), [
        ({"schedule": "61 * * * *"}, "is not a schedule"), ({"timezone": "Mars/Olympus"}, "timezone must be a name"),
        ({"task": "no.such.task"}, "is not below the installed apps"), ({"task": PLACED}, "cannot be called so"),
        ({"args": "[" * 3_000 + "]" * 3_000}, "cannot be read"), ({"args": f"[1{'0' * 5_000}]"}, "cannot be read"),
        ({"args": '["\\ud800"]'}, "cannot be read"),
        ({"args": "{}"}, "args must be a list"), ({"kwargs": "[1"}, "not JSON: Expecting ',' delimiter: line 1"),
        ({"jitter": "86401"}, "jitter must be whole seconds from 0 to 86,400"), ({"times": "0"}, "times must be"),
        ({"phase": "1"}, "phase belongs to an interval"), ({"until": "soon"}, "Enter a valid date/time."),
        ({"task": "tests.reaper.recurring.tasks.private"}, "Only superusers may schedule"),
        ({"backend": "nowhere"}, "nowhere"), ({"queue_name": "a\x00b"}, "Null characters"),
    ])  # fmt: skip
    def test_what_cannot_run_is_refused(self, clock: Clock, editor: Client, fields: dict[str, str], words: str) -> None:
        assert words in self.save(editor, **fields)
        assert (RecurringTask.objects.count(), OperatorAction.objects.count()) == (0, 0)

    def test_a_superuser_may_schedule_any_task_and_others_are_offered_the_schedulable_ones(
        self, clock: Clock, editor: Client, admin_client: Client
    ) -> None:
        offered = Page(editor.get(admin_url("recurringtask_add")).content.decode())
        names = {attrs["value"] for tag, attrs in offered.tags if tag == "option" and "." in (attrs["value"] or "")}
        assert {REPORT, PLACED} <= names
        assert PRIVATE not in names
        assert "was added" in self.save(admin_client, task=PRIVATE, args="[]")
        task = RecurringTask.objects.get()
        assert "Only superusers may schedule" in self.save(editor, task, task=PRIVATE, args="[]", schedule="@hourly")
        assert "is paused" in act(editor, task, "pause"), "a pause runs nothing"

    def test_an_end_phase_jitter_and_expiry_are_saved_and_the_end_is_shown(self, clock: Clock, editor: Client) -> None:
        given = {"until": "2030-01-01 14:00", "times": "2", "phase": "60", "jitter": "0", "expires": "300"}
        assert "was added" in self.save(editor, schedule="every hour", timezone="UTC", **given)
        task = RecurringTask.objects.get()
        assert (task.until, task.times, task.phase) == (NOON + timedelta(hours=2), 2, 60)
        for _ in range(4):
            tick()
            clock.advance(hours=1)
        assert "night ended" in shown(editor)
        job = StoredJob.objects.latest("pk")
        assert job.expires_at - job.created_at == timedelta(minutes=5)
        assert "was changed" in self.save(editor, task, schedule="every hour", **{**given, "until": "", "times": "4"})
        tick()
        assert "night ended" not in shown(editor)

    def test_it_is_saved_where_its_queue_is(self, far: str, clock: Clock, editor: Client, settings: Any) -> None:
        settings.LEASEQUEUE = {"DATABASES": ["default", far], "ROUTER": "tests.reaper.recurring.test_recurring.by_name"}
        assert "Night was saved in the database far, where its queue is." in self.save(editor, queue_name="bulk")
        task = RecurringTask.objects.using(far).get()
        assert not RecurringTask.objects.exists()
        assert list(OperatorAction.objects.using(far).values_list("action", flat=True)) == ["add_recurring"]
        assert editor.cookies["leasequeue_database"].value == far, "its list is shown"
        assert "was changed" in self.save(editor, task, queue_name="bulk", schedule="every hour")
        assert "in the database default" in self.save(editor, task, queue_name="")
        assert RecurringTask.objects.get().schedule == "30 2 * * *"
        assert not RecurringTask.objects.using(far).exists()
        made(queue_name="bulk")
        RecurringTask.objects.using(far).create(name="report", task=REPORT, schedule="0 * * * *")
        report = RecurringTask.objects.get(name="report")
        assert "has a recurring task of that name" in self.save(editor, report, name="report", queue_name="bulk")

    def test_the_next_ten_times_are_shown(self, clock: Clock, editor: Client) -> None:
        task = made(schedule="30 2 * * *", timezone="Europe/Berlin")
        answer = editor.get(admin_url("recurringtask_change", task.pk))
        text = Page(answer.content.decode()).text
        assert all(f"2030-01-{day:02} 02:30:00 CET" in text for day in range(2, 12))
        assert "2030-01-12" not in text
        url = admin_url("recurringtask_times")
        found = editor.get(url, {"schedule": "every 2 hours", "timezone": "UTC"}).content.decode()
        assert (found.count("<li>"), "14:00:00 UTC</time> <small>in 2 h" in found) == (10, True)
        half_past = {"schedule": "every 2 hours", "timezone": "UTC", "phase": "1800", "until": "2030-01-01 16:00"}
        found = editor.get(url, half_past).content.decode()
        assert (found.count("<li>"), "12:30:00 UTC" in found, "14:30:00 UTC" in found) == (2, True, True)
        assert "Enter a valid date/time." in editor.get(url, {**half_past, "until": "soon"}).content.decode()
        assert "is not a schedule" in editor.get(url, {"schedule": "<x>", "timezone": "UTC"}).content.decode()
        assert signed_in("view_job", name="stranger").get(url).status_code == 403

    def test_those_of_the_settings_are_read_only(self, clock: Clock, editor: Client, settings: Any) -> None:
        report = {"task": REPORT, "schedule": "0 * * * *", "args": ["report"]}
        settings.LEASEQUEUE = {"RECURRING": {"report": report}}
        engine.run(sync("default"))
        task = RecurringTask.objects.get()
        for _ in range(2):
            url = admin_url("recurringtask_change", task.pk)
            text = Page(editor.get(url).content.decode()).text
            assert "The settings declare this task" in text
            assert "2030-01-01 13:00:00" in text
            assert editor.post(url, self.NEW).status_code == 403
            delete = admin_url("recurringtask_delete", task.pk)
            assert editor.post(delete, {"post": "yes"}).status_code == 403
            act(editor, task, "pause")
        engine.run(sync("default"))
        assert RecurringTask.objects.get().enabled is False
        act(editor, task, "resume")
        settings.LEASEQUEUE = {"RECURRING": {"report": {**report, "schedule": "30 * * * *"}}}
        engine.run(sync("default"))
        task.refresh_from_db()
        assert (task.enabled, task.from_settings, task.schedule) == (True, True, "30 * * * *")


def test_who_may_only_look_cannot_act(clock: Clock) -> None:
    task = made()
    viewer = signed_in("view_recurringtask", name="viewer")
    assert "Run the selected" not in shown(viewer)
    for action in ("run", "pause", "resume"):
        act(viewer, task, action)
    for name, args in (("add", []), ("delete", [task.pk])):
        assert viewer.get(admin_url(f"recurringtask_{name}", *args)).status_code == 403
    url = admin_url("recurringtask_change", task.pk)
    caller = signed_in("view_recurringtask", "change_recurringtask", name="caller")
    assert caller.post(url, TestForm.NEW).status_code == 403, "who may pause one may not make it another"
    assert "Kwargs" not in viewer.get(url).content.decode(), "arguments may be secret"
    assert viewer.post(url, TestForm.NEW).status_code == 403
    task.refresh_from_db()
    assert (task.enabled, StoredJob.objects.count(), OperatorAction.objects.count()) == (True, 0, 0)
    stranger = signed_in("view_job", name="stranger")
    assert stranger.get(admin_url("recurringtask_changelist")).status_code == 403
