"""A worker of tasks takes what it can run: queues that hold tasks, and none of those with consumers of their own."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_leasequeue import Consumer, Queue, engine
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.enums import EventKind, JobState
from django_leasequeue.models import Job, JobEvent, LiveJob
from django_leasequeue.models import Queue as QueueRow
from django_leasequeue.reaper import status
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.worker.queue_names import QueueNames
from tests.support.waiting import eventually
from tests.tasks import samples
from tests.tasks.django_api import BACKEND
from tests.worker.processes import TASKS, Start, starting
from tests.worker.support import Threaded, burst

pytestmark = pytest.mark.django_db(transaction=True)

#: A backend whose tasks may be in any queue, and whose tests' queues need no declaration.
ANY = {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"preset": "django"}}}
LISTED = {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "listed"], "OPTIONS": {"preset": "django"}}}


@pytest.fixture
def start(subprocess_env: dict[str, str]) -> Iterator[Start]:
    with starting(subprocess_env) as function:
        yield function


def served(project: str = "", handler: Any = None) -> list[str]:
    """The queues of a worker that names none."""
    threaded = Threaded(handler or TaskHandler(project), project=project)
    link = threaded.worker._fetcher.link
    names = QueueNames(threaded.state, link)
    names.refresh()
    link.close()
    threaded.state.journal.close()
    return names.names


def given_back() -> int:
    return JobEvent.objects.filter(kind=EventKind.RELEASED).count()


class TestQueuesThatAreServed:
    def test_those_that_the_settings_declare_for_tasks(self) -> None:
        engine.run(engine.create("listed"))
        engine.run(engine.create("of-others"))
        with override_settings(TASKS=LISTED):
            assert served() == ["listed"]
        assert QueueRow.objects.get(name="listed").holds_tasks

    def test_one_that_a_task_has_made_at_once(self) -> None:
        with override_settings(TASKS=ANY):
            samples.add.using(queue_name="mail").enqueue(2)
            assert QueueRow.objects.get(name="mail").holds_tasks
            assert served() == ["mail"]

    @pytest.mark.parametrize("before", [0, 300])
    def test_one_of_others_in_which_a_task_was_enqueued_and_for_good(self, before: int) -> None:
        queue = Queue("mixed", preset="django")
        queue.create()
        for number in range(before):
            queue.enqueue({"n": number})
        with override_settings(TASKS=ANY):
            assert served() == []
            samples.add.using(queue_name="mixed").enqueue(2)
            assert served() == ["mixed"]
            queue.purge()
            assert served() == ["mixed"], "it is remembered"

    def test_a_dead_letter_topic_is_not_served(self) -> None:
        engine.run(engine.create("graves"))
        engine.run(engine.create("work", preset="django", dead_letter="graves", exhaust_at="claim"))
        engine.run(engine.enqueue("work", [NewJob(name="tests.tasks.samples.add", max_deliveries=1)]))
        (job,) = engine.run(engine.claim("work", "n"))
        engine.run(engine.release([engine.Release(job.seq, job.token, 0)], "n"))
        engine.run(engine.claim("work", "n"))
        assert LiveJob.objects.get().queue.name == "graves"
        assert served() == []

    def test_a_handler_of_its_own_takes_all(self) -> None:
        engine.run(engine.create("of-others"))
        assert served(handler=_Plain()) == ["of-others"]

    def test_another_project_has_its_own(self) -> None:
        engine.run(engine.create("listed", project="shop"))
        with override_settings(TASKS=LISTED):
            assert served("shop") == []


class _Plain:
    """A handler that does not say that it runs tasks."""


def test_jobs_of_consumers_are_left_to_them() -> None:
    queue = Queue("events", preset="django", max_deliveries=1)
    for number in range(20):
        queue.enqueue({"n": number})
    engine.run(engine.create("topic", preset="topics"))
    engine.run(engine.enqueue("topic", [NewJob({"n": 1})]))
    result = samples.add.enqueue(2)
    burst(TaskHandler())
    result.refresh()
    assert result.return_value == 2
    assert LiveJob.objects.filter(state=JobState.READY, deliveries=0).count() == 21
    assert given_back() == 0, "they were not even claimed"


def test_a_worker_that_names_the_queue_gives_back_what_is_no_task(caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue("events", preset="django", max_deliveries=1)
    for number in range(20):
        queue.enqueue({"n": number})
    burst(TaskHandler(), queues=("events",))
    assert LiveJob.objects.filter(state=JobState.DELAYED, deliveries=0).count() == 20
    said = [record.getMessage() for record in caplog.records if "A job is given back" in record.getMessage()]
    assert len(said) == 1


@pytest.mark.slow  # a worker process
@pytest.mark.sample
def test_beside_a_consumer_a_worker_process_takes_none_of_its_jobs(start: Start) -> None:
    queue = Queue("events", preset="django", max_deliveries=1)
    queue.create()
    with override_settings(TASKS=ANY):
        worker = start(*TASKS, reaper=True)
        worker.says("Worker started")
        seen: list[int] = []
        for number in range(200):
            queue.enqueue({"n": number})
        consumer = Consumer(queue, lambda job: seen.append(job.payload["n"]), concurrency=2, reaper=False)
        consumer.start()
        try:
            eventually(lambda: len(seen) == 200, "the consumer has them all")
        finally:
            consumer.stop()
        assert sorted(seen) == list(range(200))
        assert given_back() == 0
        result = samples.add.enqueue(2)
        eventually(lambda: Job.objects.filter(key=result.id, state="completed").exists(), "a task runs")
        late = samples.add.using(queue_name="events").enqueue(4)
        eventually(lambda: Job.objects.filter(key=late.id, state="completed").exists(), "also one among others")
    worker.ends()


class TestAlerts:
    def problems(self) -> list[str]:
        return [text for text in status.read_status("default").problems if "are ready" in text]

    def test_the_command_that_is_advised_is_one_for_a_shell(self) -> None:
        project = "it's mine; date"
        engine.run(engine.create("-mail", project=project))
        engine.run(engine.enqueue("-mail", [NewJob(name="shop.tasks.send")], project=project))
        (text,) = self.problems()
        assert shlex.split(text.split("`")[1]) == ["manage.py", "runworker", "--queues=-mail", "--project", project]

    def test_other_jobs_want_their_consumer(self) -> None:
        Queue("events").enqueue({"n": 1})
        (text,) = self.problems()
        assert text.startswith("Nobody claims from events (last claim: never), and jobs are ready. They are no tasks:")

    def test_a_consumer_that_polls_claims(self, clock: Clock) -> None:
        """It holds nothing and no session waits at the moment of the look, and is there."""
        queue = Queue("events")
        queue.create()
        assert queue.claim() == []
        first = clock.now
        clock.advance(seconds=59)
        queue.enqueue({"n": 1})
        queue.ack(queue.claim()[0])
        assert engine.run(engine.counts("events")).claimed_at == first, "noted once a minute"
        clock.advance(seconds=2)
        assert queue.claim() == []
        assert engine.run(engine.counts("events")).claimed_at == clock.now
        queue.enqueue({"n": 2})
        clock.advance(minutes=5, seconds=1)
        assert self.problems() != [], "it polls no longer"
        queue.ack(queue.claim()[0])
        queue.enqueue({"n": 3})
        assert self.problems() == []
        clock.advance(minutes=4)
        assert self.problems() == []

    def test_a_paused_queue_is_left_alone(self) -> None:
        queue = Queue("events")
        queue.enqueue({"n": 1})
        queue.pause()
        assert self.problems() == []
