"""Which database a queue is in: the backend's option, else the router, else the one of the settings."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_leasequeue import Queue, engine
from django_leasequeue.checks.settings import check_settings
from django_leasequeue.engine.queues import routing
from django_leasequeue.engine.queues.declared import change
from django_leasequeue.engine.queues.queues import ensure
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import Queue as Model
from django_leasequeue.models import StoredJob
from django_leasequeue.tasks import LeaseQueueBackend
from tests.http.client import Api
from tests.support.databases import database_alias
from tests.tasks import samples

ROUTER = f"{__name__}.route"
asked: list[tuple[str, str]] = []


def route(project: str, queue: str) -> str:
    asked.append((project, queue))
    return "nowhere" if queue == "lost" else "default"


def databases(**params: Any) -> list[str]:
    return LeaseQueueBackend("default", params).databases()


def test_without_a_router_there_is_one_database() -> None:
    assert routing.alias_of("", "mail") == "default"
    assert routing.aliases() == ["default"]
    with override_settings(LEASEQUEUE={"DATABASE": "other"}):
        assert routing.alias_of("", "mail") == "other"


@pytest.mark.django_db
def test_a_router_is_asked_for_each_queue_and_its_mistakes_are_said() -> None:
    asked.clear()
    with override_settings(LEASEQUEUE={"ROUTER": ROUTER}):
        result = samples.add.using(queue_name="mail").enqueue(1)
        assert (asked, samples.add.get_result(result.id).args) == ([("", "mail")], [1])
        with pytest.raises(ImproperlyConfigured, match="'nowhere'"):
            samples.add.using(queue_name="lost").enqueue(1)
    assert StoredJob.objects.count() == 1
    with override_settings(LEASEQUEUE={"ROUTER": "no.such.router"}):
        with pytest.raises(ImproperlyConfigured, match=r"no\.such"):
            routing.alias_of("", "mail")


def test_results_are_looked_for_where_the_queues_are() -> None:
    assert databases(OPTIONS={"database": "other"}) == ["other"]
    assert databases(QUEUES=["a", "b"]) == ["default"]
    with override_settings(LEASEQUEUE={"ROUTER": ROUTER}):
        assert databases(QUEUES=["a", "b"]) == ["default"]
        assert databases(QUEUES=[]) == ["default"]


@pytest.fixture
def two_databases() -> Iterator[None]:
    """Queues whose names begin with ``far`` are in another database."""
    router = {"ROUTER": f"{__name__}.by_name", "API": {"ACCESS": "open"}}
    with database_alias("far", django_settings.DATABASES["default"]), override_settings(LEASEQUEUE=router):
        yield


def by_name(project: str, queue: str) -> str:
    return "far" if queue.startswith("far") else "default"


@pytest.mark.django_db
@pytest.mark.usefixtures("two_databases")
def test_a_dead_letter_topic_in_another_database_than_its_queue_is_refused() -> None:
    for make in (engine.create("near", dead_letter="far.dlq"), ensure("near", dead_letter="far.dlq")):
        with pytest.raises(InvalidOption, match=r"'far\.dlq' of 'near' .* sends it to 'far', the queue to 'default'"):
            engine.run(make)
    for name, dead_letter in (("near", "near.dlq"), ("other", "self"), ("none", None), ("far", "far.dlq")):
        engine.run(engine.create(name, dead_letter=dead_letter))
    refused: list[Callable[[], object]] = [
        lambda: Queue("new", preset="django", dead_letter="far.dlq").create(),
        lambda: engine.run(engine.configure("near", dead_letter="far.dlq")),
        lambda: change("near", {"dead_letter": "far.dlq"}, "", "default"),
    ]
    for act in refused:
        with pytest.raises(InvalidOption, match="another database"):
            act()
    api, config = Api(), {"type": "queue", "max_deliveries": 1, "dead_letter": "far.dlq"}
    for answer in (
        api.put("topics/near", config),
        api.put("topics/new", config),
        api.post("topics/new", {"records": [{"data": 1}], "config": config}),
    ):
        assert (answer.status, answer.code) == (400, "invalid_request")
        assert "another database" in answer.message
    assert sorted(Model.objects.values_list("name", "dead_letter")) == [
        ("far", "far.dlq"), ("near", "near.dlq"), ("none", None), ("other", "self"),
    ]  # fmt: skip
    declared = {"near": {"dead_letter": "far.dlq"}, "far": {"dead_letter": "far.dlq"}}
    with override_settings(LEASEQUEUE={"ROUTER": f"{__name__}.by_name", "QUEUES": declared}):
        (error,) = [message for message in check_settings(None) if message.id == "leasequeue.E012"]
    assert "'near'" in error.msg
    assert "another database" in error.msg


@pytest.mark.django_db
@pytest.mark.usefixtures("two_databases")
def test_a_dead_letter_topic_that_a_router_wants_elsewhere_by_now_is_made_beside_its_queue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine.run(engine.create("near", dead_letter="near.dlq", max_deliveries=1, exhaust_at="release"))
    Model.objects.update(dead_letter="far.dlq")
    engine.run(engine.enqueue("near", [engine.NewJob(data=1)]))
    (job,) = engine.run(engine.claim("near", "w"))
    engine.run(engine.nack([job.seq], "w"))
    assert StoredJob.objects.get().queue.name == "far.dlq"
    (said,) = [record.message for record in caplog.records if "far.dlq" in record.message]
    assert "another database" in said
    assert "made in the database of the queue" in said
