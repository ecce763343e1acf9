"""``check()``: what is wrong with a backend's settings, by id."""

from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from django_leasequeue.tasks import LeaseQueueBackend
from tests.tasks.django_api import BACKEND

ALL_PRIORITIES = {"priority_min": -100, "priority_max": 100}


def found(**params: Any) -> list[tuple[str, str]]:
    backend = LeaseQueueBackend("default", {"BACKEND": BACKEND, **params})
    return [(str(message.id), str(message.msg)) for message in backend.check()]


@pytest.mark.parametrize("params", [
    {}, {"QUEUES": []},
    {"QUEUES": ["default", "mail"], "OPTIONS": {"queues": {"mail": {"preset": "codeq", **ALL_PRIORITIES}}}},
    {"OPTIONS": {"project": "tenant-1", "database": "default", "preset": "django", "queues": {}}},
])  # fmt: skip
def test_what_is_right_is_not_spoken_of(params: dict[str, Any]) -> None:
    assert found(**params) == []


@pytest.mark.parametrize(("params", "identity", "says"), [
    ({"OPTIONS": {"queue": {}}}, "E002", "'queue'] is not an option"), ({"OPTIONS": []}, "E002", "must be a dict"),
    ({"OPTIONS": {"database": "elsewhere"}}, "E003", "not an alias in DATABASES"),
    ({"OPTIONS": {"database": 7}}, "E003", "not an alias in DATABASES"),
    ({"OPTIONS": {"project": 7}}, "E004", "the project must be"),
    ({"OPTIONS": {"preset": "rabbit"}}, "E005", "'rabbit'"),
    ({"OPTIONS": {"queues": {"default": {"preset": "rabbit"}}}}, "E005", "'rabbit'"),
    ({"QUEUES": "default"}, "E006", "must be a list of names"),
    ({"QUEUES": ["default", "no spaces"]}, "E006", "1 to 255"),
    ({"OPTIONS": {"queues": ["default"]}}, "E007", "must be a dict of dicts"),
    ({"OPTIONS": {"queues": {"default": 7}}}, "E007", "must be a dict of options"),
    ({"OPTIONS": {"queues": {"default": {"lease": 7}}}}, "E007", "'lease' is not an option"),
    ({"OPTIONS": {"queues": {"default": {"max_deliveries": -1}}}}, "E007", "max_deliveries"),
    ({"OPTIONS": {"queues": {"default": {7: 1}}}}, "E007", "default"),
    ({"OPTIONS": {"queues": {"mail": {}}}}, "E008", "not one of the backend's QUEUES"),
    ({"OPTIONS": {"queues": {"default": {"type": "log"}}}}, "E009", "a log"),
    ({"ENQUEUE_ON_COMMIT": True}, "W001", "has no effect"),
    ({"OPTIONS": {"queues": {"default": {"result_ttl_ms": 0}}}}, "W002", "get_result() does not find"),
    (
        {"QUEUES": ["mail"], "OPTIONS": {"queues": {"mail": {"priority_order": "asc"}}}}, "W003",
        "priority_order is 'asc', from -100 to 100",
    ),
    ({"OPTIONS": {"queues": {"default": {"priority_max": 9}}}}, "W003", "from -100 to 9"),
    (
        {"OPTIONS": {"preset": "codeq"}}, "W003",
        "'default', with preset 'codeq': priority_order is 'desc', from 0 to 9",
    ),
    ({"QUEUES": [], "OPTIONS": {"preset": "codeq"}}, "W003", "a queue with preset 'codeq'"),
])  # fmt: skip
def test_what_is_wrong_has_an_id_and_a_message(params: dict[str, Any], identity: str, says: str) -> None:
    messages = found(**params)
    assert [name for name, _ in messages] == [f"leasequeue.tasks.{identity}"]
    assert says in messages[0][1]
    assert "TASKS['default']" in messages[0][1]


def test_a_queue_that_the_settings_declare_is_not_made_with_the_preset() -> None:
    params = {"QUEUES": ["mail"], "OPTIONS": {"preset": "codeq"}}
    with override_settings(LEASEQUEUE={"QUEUES": {"mail": {"preset": "django"}}}):
        assert found(**params) == []
        params["OPTIONS"] = {"preset": "jqueue", "project": "tenant-1"}
        assert [name for name, _ in found(**params)] == ["leasequeue.tasks.W002", "leasequeue.tasks.W003"]


def test_the_app_must_be_installed() -> None:
    apps = ["django.contrib.contenttypes", "django.contrib.auth"]
    with override_settings(INSTALLED_APPS=apps):
        assert [name for name, _ in found()] == ["leasequeue.tasks.E001"]


def test_djangos_checks_ask_the_backend() -> None:
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": {"nonsense": 1}}}):
        assert "leasequeue.tasks.E002" in {message.id for message in run_checks()}
