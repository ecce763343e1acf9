"""What a queue that is missing becomes, whoever needs it first; which database a queue is in."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import ProgrammingError
from django.test import override_settings
from django.utils import timezone

from django_leasequeue import Queue, engine
from django_leasequeue.checks.settings import check_settings
from django_leasequeue.engine import NewJob, Release
from django_leasequeue.engine.queues import declared, routing
from django_leasequeue.engine.queues.declared import change, make_queues, on_migrate
from django_leasequeue.engine.queues.presets import PRESETS
from django_leasequeue.engine.queues.queues import Definition, make_defined
from django_leasequeue.engine.topics.topics import write
from django_leasequeue.exceptions import InvalidOption, QueueNotFound
from django_leasequeue.models import Queue as QueueRow
from django_leasequeue.models import RecurringTask, StoredJob
from django_leasequeue.queue.base import definition
from django_leasequeue.reaper.declarations import sync
from django_leasequeue.reaper.ticks import Tick, take_ticks
from django_leasequeue.tasks import LeaseQueueBackend
from django_leasequeue.worker import queue_names
from tests.http.client import Api
from tests.support.databases import database_alias
from tests.tasks import django_api, samples
from tests.tasks.django_api import BACKEND

pytestmark = pytest.mark.django_db


def dead_letter() -> None:
    engine.run(engine.create("mortal", max_deliveries=1, exhaust_at="release", dead_letter="mail"))
    engine.run(engine.enqueue("mortal", [NewJob()]))
    (job,) = engine.run(engine.claim("mortal", "n", 1))
    engine.run(engine.release([Release(job.seq)], "n"))


def recurring() -> None:
    engine.run(sync("default"))
    take_ticks("default", [Tick(RecurringTask.objects.get().pk, "", timezone.now(), timezone.now())])


CALLERS: dict[str, Callable[[], object]] = {
    "task": lambda: samples.add.using(queue_name="mail").enqueue(1),
    "many tasks": lambda: samples.add.using(queue_name="mail").enqueue_many([(number, 1) for number in range(3)]),
    "worker": lambda: engine.run(queue_names.make_queues("", ["mail"], "default")),
    "enqueue": lambda: engine.run(engine.enqueue("mail", [NewJob()])),
    "bulk enqueue": lambda: engine.run(engine.enqueue("mail", [NewJob() for _ in range(500)])),
    "handle's enqueue": lambda: Queue("mail", preset="jqueue", lease_ms=7_000).enqueue(1),
    "handle's claim": lambda: Queue("mail", preset="jqueue").claim(),
    "handle's make": lambda: Queue("mail", preset="jqueue").make(),
    "handle's create": lambda: Queue("mail", preset="jqueue").create(),
    "topic": lambda: engine.run(write("mail", [NewJob()], create={"type": "log", "lease_ms": 6_000})),
    "zaqar": lambda: engine.run(make_defined("", "mail", Definition("zaqar"))),
    "dead letter": dead_letter,
    "recurring": recurring,
    "migrate": lambda: make_queues("default"),
    "sync command": lambda: declared.apply("default"),
}


def settle(settings: Any, tasks: dict[str, Any], **leasequeue: Any) -> None:
    recurs = {"task": "tests.tasks.samples.add", "schedule": "every minute", "args": [1, 1], "queue_name": "mail"}
    settings.TASKS = tasks
    settings.LEASEQUEUE = {"RECURRING": {"tick": recurs}, "DEFAULT_PRESET": "codeq", **leasequeue}


def mail() -> tuple[str, str, int]:
    row = QueueRow.objects.get(project="", name="mail")
    return row.type, row.requeue, row.lease_ms


@pytest.mark.parametrize("auto_create", [True, False])
@pytest.mark.parametrize("first", CALLERS)
@pytest.mark.parametrize(("queues", "lease"), [({"mail": {"preset": "django", "lease_ms": 1_000}}, 1_000), ({}, 5_000)])
def test_settings_then_the_task_backend(settings: Any, first: str, auto_create: bool, queues: Any, lease: int) -> None:
    options = {"preset": "django", "queues": {"mail": {"lease_ms": 5_000}}}
    tasks = {
        "other": {"BACKEND": BACKEND, "QUEUES": ["mail"], "OPTIONS": {"project": "other", "preset": "jqueue"}},
        "default": {"BACKEND": BACKEND, "QUEUES": ["mail"], "OPTIONS": options},
        "later": {"BACKEND": BACKEND, "QUEUES": ["mail"], "OPTIONS": {"preset": "jobqueue"}},
    }
    settle(settings, tasks, QUEUES=queues, AUTO_CREATE=auto_create)
    CALLERS[first]()
    assert mail() == ("queue", "original", lease)


@pytest.mark.parametrize("first", ["task", "many tasks", "worker", "enqueue", "bulk enqueue", "recurring"])
@pytest.mark.parametrize("preset", ["django", None])
def test_a_backend_that_takes_any_name_says_what_is_left_open(settings: Any, first: str, preset: str | None) -> None:
    options = {} if preset is None else {"preset": preset}
    settle(settings, {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}})
    CALLERS[first]()
    assert mail() == (("queue", "original", 60_000) if preset else ("queue", "back", 300_000))


@pytest.mark.parametrize(("first", "found"), [
    ("handle's enqueue", ("queue", "original", 7_000)), ("handle's claim", ("queue", "original", 300_000)),
    ("handle's make", ("queue", "original", 300_000)),
    ("topic", ("log", "original", 6_000)), ("zaqar", ("queue", "original", 300_000)),
    ("dead letter", ("log", "original", 30_000)),
])  # fmt: skip
def test_own_options_count_for_what_nobody_declares(settings: Any, first: str, found: tuple[str, str, int]) -> None:
    settle(settings, {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"preset": "django"}}})
    CALLERS[first]()
    assert mail() == found


@pytest.mark.parametrize("first", [
    "enqueue", "bulk enqueue", "handle's enqueue", "handle's claim", "handle's make", "task", "recurring",
])  # fmt: skip
def test_nothing_is_made_where_queues_must_be_declared(settings: Any, first: str) -> None:
    settle(settings, {"default": {"BACKEND": BACKEND, "QUEUES": []}}, AUTO_CREATE=False)
    with pytest.raises(QueueNotFound):
        CALLERS[first]()
    CALLERS["worker"]()
    assert not QueueRow.objects.exists()
    assert Queue("mail").create() is True
    assert Queue("mail").enqueue(1).status == "queued"


def test_what_is_declared_for_another_database_does_not_count(settings: Any) -> None:
    options = {"database": "other", "queues": {"mail": {"lease_ms": 5_000}}}
    settle(settings, {"default": {"BACKEND": BACKEND, "QUEUES": ["mail"], "OPTIONS": options}})
    CALLERS["worker"]()
    assert mail() == ("queue", "back", 300_000)
    assert definition(Queue("mail", using="other")).options == {"lease_ms": 5_000}


@pytest.fixture
def _declared() -> Iterator[None]:
    options = {"queues": {"mail": {"lease_ms": 5_000}}}
    tasks = {
        "default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": options},
        "tenant": {"BACKEND": BACKEND, "OPTIONS": {"project": "tenant-1", "preset": "codeq"}},
        "elsewhere": {"BACKEND": BACKEND, "QUEUES": ["far"], "OPTIONS": {"database": "other"}},
        "none": {"BACKEND": django_api.DUMMY},
    }
    queues = {"mail": {"lease_ms": 9_000}, "feed": {"preset": "topics", "type": "log"}, "plain": {}}
    with override_settings(TASKS=tasks, LEASEQUEUE={"QUEUES": queues}):
        yield


def rows() -> dict[tuple[str, str], tuple[str, int]]:
    return {(queue.project, queue.name): (queue.type, queue.lease_ms) for queue in QueueRow.objects.all()}


@pytest.mark.usefixtures("_declared")
@pytest.mark.parametrize("make", [
    lambda: on_migrate("default"), lambda: call_command("migrate", "leasequeue", verbosity=0),
])  # fmt: skip
def test_what_is_declared_is_made_once_at_migrate(make: Callable[[], None]) -> None:
    make()
    assert rows() == {
        ("", "default"): ("queue", PRESETS["django"]["lease_ms"]), ("", "mail"): ("queue", 9_000),
        ("", "feed"): ("log", 30_000), ("", "plain"): ("queue", PRESETS["django"]["lease_ms"]),
        ("tenant-1", "default"): ("queue", PRESETS["codeq"]["lease_ms"]),
    }  # fmt: skip
    assert make_queues("default") == []


@pytest.mark.usefixtures("_declared")
def test_what_is_there_stays_as_it_is_and_a_wrong_declaration_is_said() -> None:
    engine.run(engine.create("mail", lease_ms=1_000))
    assert sorted(make_queues("default")) == ["default", "default", "feed", "plain"]
    assert rows()["", "mail"] == ("queue", 1_000)
    with override_settings(LEASEQUEUE={"QUEUES": {"mail": {"lease": 1}}}):
        with pytest.raises(InvalidOption, match="'lease'"):
            make_queues("default")


def test_tables_of_another_time_are_no_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(using: str) -> None:
        raise ProgrammingError("column does not exist")

    monkeypatch.setattr(declared, "make_queues", refuse)
    on_migrate("default")
    assert "not those of this version" in caplog.text


ROUTER = f"{__name__}.route"
asked: list[tuple[str, str]] = []


def route(project: str, queue: str) -> str:
    asked.append((project, queue))
    return "nowhere" if queue == "lost" else "default"


def databases(**params: Any) -> list[str]:
    return LeaseQueueBackend("default", params).databases()


def test_one_database_without_a_router_and_results_where_the_queues_are() -> None:
    assert routing.alias_of("", "mail") == "default"
    assert routing.aliases() == ["default"]
    with override_settings(LEASEQUEUE={"DATABASE": "other"}):
        assert routing.alias_of("", "mail") == "other"
    assert databases(OPTIONS={"database": "other"}) == ["other"]
    assert databases(QUEUES=["a", "b"]) == ["default"]
    with override_settings(LEASEQUEUE={"ROUTER": ROUTER}):
        assert databases(QUEUES=["a", "b"]) == ["default"]
        assert databases(QUEUES=[]) == ["default"]


def test_a_router_is_asked_for_each_queue_and_its_mistakes_are_said() -> None:
    asked.clear()
    with override_settings(LEASEQUEUE={"ROUTER": ROUTER}):
        result = samples.add.using(queue_name="mail").enqueue(1)
        assert ({*asked}, samples.add.get_result(result.id).args) == ({("", "mail")}, [1])
        with pytest.raises(ImproperlyConfigured, match="'nowhere'"):
            samples.add.using(queue_name="lost").enqueue(1)
    assert StoredJob.objects.count() == 1
    with override_settings(LEASEQUEUE={"ROUTER": "no.such.router"}):
        with pytest.raises(ImproperlyConfigured, match=r"no\.such"):
            routing.alias_of("", "mail")


@pytest.fixture
def two_databases() -> Iterator[None]:
    """Queues whose names begin with ``far`` are in another database."""
    router = {"ROUTER": f"{__name__}.by_name", "API": {"ACCESS": "open"}}
    with database_alias("far", django_settings.DATABASES["default"]), override_settings(LEASEQUEUE=router):
        yield


def by_name(project: str, queue: str) -> str:
    return "far" if queue.startswith("far") else "default"


@pytest.mark.usefixtures("two_databases")
def test_a_dead_letter_topic_in_another_database_than_its_queue_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"'far\.dlq' of 'near' .* sends it to 'far', the queue to 'default'"):
        engine.run(engine.create("near", dead_letter="far.dlq"))
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
    assert sorted(QueueRow.objects.values_list("name", "dead_letter")) == [
        ("far", "far.dlq"), ("near", "near.dlq"), ("none", None), ("other", "self"),
    ]  # fmt: skip
    declared = {"near": {"dead_letter": "far.dlq"}, "far": {"dead_letter": "far.dlq"}}
    with override_settings(LEASEQUEUE={"ROUTER": f"{__name__}.by_name", "QUEUES": declared}):
        (error,) = [message for message in check_settings(None) if message.id == "leasequeue.E012"]
    assert "'near'" in error.msg
    assert "another database" in error.msg


@pytest.mark.usefixtures("two_databases")
def test_a_dead_letter_topic_wanted_elsewhere_by_now_is_made_beside_its_queue(caplog: pytest.LogCaptureFixture) -> None:
    engine.run(engine.create("near", dead_letter="near.dlq", max_deliveries=1, exhaust_at="release"))
    QueueRow.objects.update(dead_letter="far.dlq")
    engine.run(engine.enqueue("near", [engine.NewJob(data=1)]))
    (job,) = engine.run(engine.claim("near", "w"))
    engine.run(engine.nack([job.seq], "w"))
    assert StoredJob.objects.get().queue.name == "far.dlq"
    (said,) = [record.message for record in caplog.records if "far.dlq" in record.message]
    assert "another database" in said
    assert "made in the database of the queue" in said
