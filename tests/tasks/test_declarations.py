"""Queues that the settings declare are made at ``migrate``."""

import pytest
from django.test import override_settings

from django_leasequeue import engine
from django_leasequeue.engine.queues.declared import make_queues, on_migrate
from django_leasequeue.engine.queues.presets import PRESETS
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import Queue

BACKEND = "django_leasequeue.tasks.LeaseQueueBackend"
TASKS = {
    "default": {
        "BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": {"queues": {"mail": {"lease_ms": 5_000}}},
    },
    "tenant": {"BACKEND": BACKEND, "OPTIONS": {"project": "tenant-1", "preset": "codeq"}},
    "elsewhere": {"BACKEND": BACKEND, "QUEUES": ["far"], "OPTIONS": {"database": "other"}},
    "none": {"BACKEND": "django_tasks.backends.dummy.DummyBackend"},
}  # fmt: skip
LEASEQUEUE = {"QUEUES": {"mail": {"lease_ms": 9_000}, "feed": {"preset": "topics", "type": "log"}, "plain": {}}}

pytestmark = pytest.mark.django_db


@pytest.fixture
def _declared() -> object:
    import django

    tasks = dict(TASKS)
    if django.VERSION >= (6, 0):
        tasks["none"] = {"BACKEND": "django.tasks.backends.dummy.DummyBackend"}
    with override_settings(TASKS=tasks, LEASEQUEUE=LEASEQUEUE):
        yield


def rows() -> dict[tuple[str, str], tuple[str, int]]:
    return {(queue.project, queue.name): (queue.type, queue.lease_ms) for queue in Queue.objects.all()}


@pytest.mark.usefixtures("_declared")
def test_what_is_declared_is_made_once() -> None:
    on_migrate("default")
    assert rows() == {
        ("", "default"): ("queue", PRESETS["django"]["lease_ms"]), ("", "mail"): ("queue", 9_000),
        ("", "feed"): ("log", 30_000), ("", "plain"): ("queue", PRESETS["django"]["lease_ms"]),
        ("tenant-1", "default"): ("queue", PRESETS["codeq"]["lease_ms"]),
    }  # fmt: skip
    assert make_queues("default") == []


@pytest.mark.usefixtures("_declared")
def test_what_is_there_stays_as_it_is() -> None:
    engine.run(engine.create("mail", lease_ms=1_000))
    assert sorted(make_queues("default")) == ["default", "default", "feed", "plain"]
    assert rows()["", "mail"] == ("queue", 1_000)


def test_a_wrong_declaration_is_said() -> None:
    with (
        override_settings(LEASEQUEUE={"QUEUES": {"mail": {"lease": 1}}}),
        pytest.raises(InvalidOption, match="'lease'"),
    ):
        make_queues("default")


def test_tables_of_another_time_are_no_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    from django.db import ProgrammingError

    def refuse(using: str) -> None:
        raise ProgrammingError("column does not exist")

    monkeypatch.setattr("django_leasequeue.engine.queues.declared.make_queues", refuse)
    on_migrate("default")
    assert "not those of this version" in caplog.text


@pytest.mark.usefixtures("_declared")
def test_migrate_makes_them() -> None:
    from django.core.management import call_command

    call_command("migrate", "leasequeue", verbosity=0)
    assert ("", "mail") in rows()
