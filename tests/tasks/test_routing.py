"""Which database a queue is in: the backend's option, else the router, else the one of the settings."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_leasequeue import routing
from django_leasequeue.models import Job
from django_leasequeue.tasks import LeaseQueueBackend
from tests.tasks import samples

ROUTER = f"{__name__}.route"
asked: list[tuple[str, str]] = []


def route(project: str, queue: str) -> str:
    asked.append((project, queue))
    return "nowhere" if queue == "lost" else "default"


def databases(**params: Any) -> list[str]:
    return LeaseQueueBackend("default", params)._databases()


def test_without_a_router_there_is_one_database() -> None:
    assert routing.alias_of("", "mail") == "default"
    assert routing.aliases() == ["default"]
    with override_settings(LEASEQUEUE={"DATABASE": "other"}):
        assert routing.alias_of("", "mail") == "other"


@pytest.mark.django_db
def test_a_router_is_asked_for_each_queue() -> None:
    asked.clear()
    with override_settings(LEASEQUEUE={"ROUTER": ROUTER}):
        result = samples.add.using(queue_name="mail").enqueue(1)
        assert asked == [("", "mail")]
        assert samples.add.get_result(result.id).args == [1]
    assert Job.objects.count() == 1


@pytest.mark.django_db
def test_an_alias_that_is_not_there_is_said() -> None:
    with override_settings(LEASEQUEUE={"ROUTER": ROUTER}), pytest.raises(ImproperlyConfigured, match="'nowhere'"):
        samples.add.using(queue_name="lost").enqueue(1)


def test_a_router_that_is_not_there_is_said() -> None:
    with (
        override_settings(LEASEQUEUE={"ROUTER": "no.such.router"}),
        pytest.raises(ImproperlyConfigured, match=r"no\.such"),
    ):
        routing.alias_of("", "mail")


def test_results_are_looked_for_where_the_queues_are() -> None:
    assert databases(OPTIONS={"database": "other"}) == ["other"]
    assert databases(QUEUES=["a", "b"]) == ["default"]
    with override_settings(LEASEQUEUE={"ROUTER": ROUTER}):
        assert databases(QUEUES=["a", "b"]) == ["default"]
        assert databases(QUEUES=[]) == ["default"]
