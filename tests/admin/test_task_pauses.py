"""Paused tasks on the pages, by command, and in the status."""

import json
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.jobs.pausing import pause_task
from django_leasequeue.models import OperatorAction, PausedTask
from django_leasequeue.reaper import status
from tests.admin import pages
from tests.admin.pages import signed_in
from tests.support.commands import said, warned

pytestmark = pytest.mark.django_db
client = pytest.fixture(lambda: signed_in("view_queue", "view_job", "pause_task", "view_operatoraction", name="ann"))
command = partial(said, "leasequeue_tasks")

NAME = "tests.tasks.samples.add"


def act(client: Client, action: str, name: str = NAME, **data: Any) -> str:
    return pages.told(client, "task_act", action=action, name=name, **data)


def test_the_page_of_a_task_pauses_and_resumes_it(client: Client, clock: Clock) -> None:
    ids = pages.look(client, "task", name=NAME).ids()
    assert "task-pause" in ids
    assert "task-resume" not in ids
    assert f"{NAME} is paused: none of its jobs starts." in act(client, "pause")
    clock.advance(seconds=600)
    page = pages.look(client, "task", name=NAME)
    assert "10 min ago, by ann: none of its jobs starts" in page.text
    assert "task-resume" in page.ids()
    assert "task-pause" not in page.ids()
    assert f"The task {NAME} has been paused by ann for 10 min" in pages.look(client, "overview").text
    assert f"{NAME} is resumed: its jobs start again." in act(client, "resume")
    assert "has been paused" not in pages.look(client, "overview").text
    assert f"task {NAME}" in pages.look(client, "operatoraction_changelist").text
    lines = OperatorAction.objects.order_by("pk").values_list("action", "username", "detail")
    assert list(lines) == [("pause_task", "ann", {"name": NAME}), ("resume_task", "ann", {"name": NAME})]


def test_a_pause_in_another_project_is_shown_and_ended_there(client: Client) -> None:
    engine.run(pause_task(NAME, project="acme", by="bob"))
    page = pages.look(client, "task", name=NAME)
    assert "paused acme, " in page.text
    assert {"task-pause", "task-resume"} <= set(page.ids())
    act(client, "resume", project="acme")
    assert not PausedTask.objects.exists()


def test_what_changes_nothing_is_not_in_the_audit_and_no_name_is_an_error(client: Client) -> None:
    act(client, "resume")
    assert not OperatorAction.objects.exists()
    assert "the name of a task must be 1 to 512 bytes" in act(client, "pause", "")
    looking = signed_in("view_queue", "view_job", name="looks")
    engine.run(pause_task(NAME))
    assert not {"task-pause", "task-resume"} & set(pages.look(looking, "task", name=NAME).ids())


def test_the_command(clock: Clock) -> None:
    assert command("pause", NAME) == f"{NAME} is paused\n"
    assert command("pause", NAME) == f"{NAME} is paused, as before\n"
    assert command("pause", "shop.tasks.pay", "--project", "acme") == "shop.tasks.pay is paused\n"
    (line,) = json.loads(command("list", "--json"))
    user = OperatorAction.objects.latest("pk").username
    assert (line["database"], line["name"], line["paused_by"]) == ("default", NAME, user)
    assert NAME in command("list")
    assert NAME not in command("list", "--project", "acme")
    assert command("resume", NAME) == f"{NAME} goes on\n"
    assert json.loads(command("list", "--json")) == []
    assert warned("leasequeue_tasks", "resume", NAME) == ""
    assert "There is no task 'tests.tasks.samples.ad'" in warned("leasequeue_tasks", "pause", "tests.tasks.samples.ad")
    with pytest.raises(CommandError, match="the name of a task must be 1 to 512 bytes"):
        command("pause", "x" * 513)


@pytest.mark.django_db(transaction=True)
def test_the_status_names_paused_tasks(clock: Clock) -> None:
    engine.run(pause_task(NAME, project="acme"))
    clock.advance(seconds=90)
    (told,) = [text for text in status.read_status("default").problems if "paused" in text]
    assert told == f"The task {NAME} (acme) has been paused for 1 min 30 s: none of its jobs starts."
