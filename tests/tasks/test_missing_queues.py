"""A queue that is missing becomes the same, whoever needs it first."""

from collections.abc import Callable
from typing import Any

import pytest
from django.utils.module_loading import import_string

from django_leasequeue import Queue, engine
from django_leasequeue.engine import NewJob, Release
from django_leasequeue.engine.queues import declared
from django_leasequeue.engine.queues.declared import make_queues
from django_leasequeue.engine.queues.queues import ensure
from django_leasequeue.engine.topics.topics import write
from django_leasequeue.exceptions import QueueNotFound
from django_leasequeue.models import Queue as QueueRow
from django_leasequeue.queue.base import definition
from django_leasequeue.reaper.recurring.declared import sync
from django_leasequeue.reaper.recurring.duty import enqueue_tick
from django_leasequeue.worker import link
from tests.tasks import samples

pytestmark = pytest.mark.django_db

BACKEND = "django_leasequeue.tasks.LeaseQueueBackend"


def task() -> None:
    samples.add.using(queue_name="mail").enqueue(1)


def many_tasks() -> None:
    samples.add.using(queue_name="mail").enqueue_many([(number, 1) for number in range(3)])


def worker() -> None:
    engine.run(link.make_queues("", ["mail"], "default"))


def plain_enqueue() -> None:
    engine.run(engine.enqueue("mail", [NewJob()]))


def bulk_enqueue() -> None:
    engine.run(engine.enqueue("mail", [NewJob() for _ in range(500)]))


def handle_enqueue() -> None:
    Queue("mail", preset="jqueue", lease_ms=7_000).enqueue(1)


def handle_claim() -> None:
    Queue("mail", preset="jqueue").claim()


def handle_create() -> None:
    Queue("mail", preset="jqueue").create()


def topic_write() -> None:
    engine.run(write("mail", [NewJob()], create={"type": "log", "lease_ms": 6_000}))


def zaqar_put() -> None:
    engine.run(ensure("mail", preset="zaqar"))


def dead_letter() -> None:
    engine.run(engine.create("mortal", max_deliveries=1, exhaust_at="release", dead_letter="mail"))
    engine.run(engine.enqueue("mortal", [NewJob()]))
    (job,) = engine.run(engine.claim("mortal", "n", 1))
    engine.run(engine.release([Release(job.seq)], "n"))


def recurring() -> None:
    from django.utils import timezone

    from django_leasequeue.models import RecurringTask

    engine.run(sync("default"))
    enqueue_tick("default", RecurringTask.objects.get().pk, timezone.now(), timezone.now())


def migrate() -> None:
    make_queues("default")


def sync_command() -> None:
    declared.apply("default")


CALLERS = (
    task, many_tasks, worker, plain_enqueue, bulk_enqueue, handle_enqueue, handle_claim, handle_create, topic_write,
    zaqar_put, dead_letter, recurring, migrate, sync_command,
)  # fmt: skip


def settle(settings: Any, tasks: dict[str, Any], **leasequeue: Any) -> None:
    path = "tests.tasks.samples.add"
    assert import_string(path) is samples.add
    recurs = {"tick": {"task": path, "schedule": "every minute", "args": [1, 1], "queue_name": "mail"}}
    settings.TASKS = tasks
    settings.LEASEQUEUE = {"RECURRING": recurs, "DEFAULT_PRESET": "codeq", **leasequeue}


def mail() -> tuple[str, str, int]:
    row = QueueRow.objects.get(project="", name="mail")
    return row.type, row.requeue, row.lease_ms


@pytest.mark.parametrize("auto_create", [True, False])
@pytest.mark.parametrize("first", CALLERS, ids=lambda caller: caller.__name__)
def test_the_settings_of_the_queue_come_first(settings: Any, first: Callable[[], None], auto_create: bool) -> None:
    backend = {"BACKEND": BACKEND, "QUEUES": ["mail"], "OPTIONS": {"queues": {"mail": {"lease_ms": 5_000}}}}
    queues = {"mail": {"preset": "django", "lease_ms": 1_000}}
    settle(settings, {"default": backend}, QUEUES=queues, AUTO_CREATE=auto_create)
    first()
    assert mail() == ("queue", "original", 1_000)


@pytest.mark.parametrize("auto_create", [True, False])
@pytest.mark.parametrize("first", CALLERS, ids=lambda caller: caller.__name__)
def test_then_the_task_backend_that_lists_it(settings: Any, first: Callable[[], None], auto_create: bool) -> None:
    options = {"preset": "django", "queues": {"mail": {"lease_ms": 5_000}}}
    tasks = {
        "other": {"BACKEND": BACKEND, "QUEUES": ["mail"], "OPTIONS": {"project": "other", "preset": "jqueue"}},
        "default": {"BACKEND": BACKEND, "QUEUES": ["mail"], "OPTIONS": options},
        "later": {"BACKEND": BACKEND, "QUEUES": ["mail"], "OPTIONS": {"preset": "jobqueue"}},
    }
    settle(settings, tasks, AUTO_CREATE=auto_create)
    first()
    assert mail() == ("queue", "original", 5_000)


@pytest.mark.parametrize("first", [task, many_tasks, worker, plain_enqueue, bulk_enqueue, recurring])
@pytest.mark.parametrize("preset", ["django", None])
def test_a_backend_that_takes_any_name_says_what_others_leave_open(
    settings: Any, first: Callable[[], None], preset: str | None
) -> None:
    options = {} if preset is None else {"preset": preset}
    settle(settings, {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}})
    first()
    assert mail() == (("queue", "original", 60_000) if preset else ("queue", "back", 300_000))


@pytest.mark.parametrize(("first", "found"), [
    (handle_enqueue, ("queue", "original", 7_000)), (handle_claim, ("queue", "original", 300_000)),
    (topic_write, ("log", "original", 6_000)), (zaqar_put, ("queue", "original", 300_000)),
    (dead_letter, ("log", "original", 30_000)),
])  # fmt: skip
def test_who_asks_for_options_of_its_own_gets_them_for_what_nobody_declares(
    settings: Any, first: Callable[[], None], found: tuple[str, str, int]
) -> None:
    settle(settings, {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"preset": "django"}}})
    first()
    assert mail() == found


@pytest.mark.parametrize("first", [plain_enqueue, bulk_enqueue, handle_enqueue, handle_claim, task, recurring])
def test_nothing_is_made_where_queues_must_be_declared(settings: Any, first: Callable[[], None]) -> None:
    settle(settings, {"default": {"BACKEND": BACKEND, "QUEUES": []}}, AUTO_CREATE=False)
    with pytest.raises(QueueNotFound):
        first()
    worker()
    assert not QueueRow.objects.exists()


def test_what_is_declared_for_another_database_does_not_count(settings: Any) -> None:
    options = {"database": "other", "queues": {"mail": {"lease_ms": 5_000}}}
    settle(settings, {"default": {"BACKEND": BACKEND, "QUEUES": ["mail"], "OPTIONS": options}})
    worker()
    assert mail() == ("queue", "back", 300_000)
    assert definition(Queue("mail", using="other")).options == {"lease_ms": 5_000}
