"""codeQ's queue by the preset ``codeq``: what its documentation promises, and what must hold without any reaper."""

from typing import Any

import pytest

from django_leasequeue import Queue, engine
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.exceptions import JobNotFound, LeaseLost
from django_leasequeue.models import Attempt, DeadLetter, LiveJob, StoredJob
from django_leasequeue.queue.calls import run
from tests.support.documents import blocks

pytestmark = pytest.mark.django_db

PAGE = "how-to/move-from-codeq.md"
COMMANDS = ["render", "mail", "index"]


@pytest.fixture
def tasks() -> Queue:
    return Queue("tasks", preset="codeq", node="worker-1")


def other(queue: Queue) -> Queue:
    return Queue(queue.name, node="worker-2")


def reap(queue: Queue) -> None:
    """Do what the reaper does of this queue."""
    info = queue.info()
    for duty in (engine.sweep, engine.promote, engine.expire):
        run(duty([info.id]), queue.using)
    run(engine.expire_results(), queue.using)


def claimed(queue: Queue, size: int = 10, **options: Any) -> list[Any]:
    return [job.payload for job in queue.claim(size, **options)]


def kill(queue: Queue, times: int = 5) -> None:
    """Let the next task fail so often that it is dead."""
    for _ in range(times):
        [job] = queue.claim()
        state = queue.nack(job, delay_ms=0, error=ValueError("boom")).state
    assert state == "dead"


def test_the_page_about_moving_runs_as_it_stands() -> None:
    names: dict[str, Any] = {}
    for block in blocks(PAGE):
        exec(block.text, names)
    assert (names["again"].status, names["again"].seq) == ("duplicate", names["receipt"].seq)
    assert [names["video"].tag, names["mail"].tag] == ["RENDER_VIDEO", "SEND_MAIL"]
    assert (names["finished"].state, names["result"]) == ("completed", {"url": "/videos/j-1"})
    assert names["back"].state == "delayed"


class TestCommands:
    """A command is a tag of its tasks; a claim names one or several."""

    @pytest.fixture(autouse=True)
    def _tasks(self, tasks: Queue) -> None:
        for number in range(6):
            tasks.enqueue(number, tag=COMMANDS[number % 3], priority=9 if number == 5 else 0)

    def test_several_commands_in_one_claim(self, tasks: Queue) -> None:
        assert claimed(tasks, tags=["index", "render"]) == [5, 0, 2, 3]
        assert claimed(tasks, tags=["index", "render"]) == []
        assert claimed(tasks) == [1, 4]

    def test_a_delayed_task_and_an_expired_one_of_these_commands(self, tasks: Queue, clock: engine_clock.Clock) -> None:
        tasks.enqueue("soon", tag="render", delay_ms=5_000)
        assert claimed(tasks, 1, tags=["render", "index"], lease_ms=1_000) == [5]
        clock.advance(seconds=5)
        assert claimed(other(tasks), tags=["render", "index"]) == [5, 0, 2, 3, "soon"]


class TestRetention:
    def test_a_longer_one_of_its_own(self, tasks: Queue, clock: engine_clock.Clock) -> None:
        tasks.enqueue("dead", key="dead", result_ttl_ms=7 * 86_400_000)
        kill(tasks)
        clock.advance(days=6)
        reap(tasks)
        assert claimed(tasks) == []
        assert tasks.counts().dead == 1

    def test_a_dead_letter_is_gone_with_all_that_belongs_to_it(self, tasks: Queue, clock: engine_clock.Clock) -> None:
        tasks.enqueue("dead", key="dead")
        kill(tasks)
        clock.advance(days=1)
        assert claimed(tasks) == []
        assert [model.objects.count() for model in (StoredJob, DeadLetter, Attempt)] == [0, 0, 0]
        assert (tasks.counts().dead, tasks.list_jobs("dead").jobs) == (0, [])


class TestNotOwner:
    """The holder of an expired lease is refused, whether or not somebody has brought the task back by then."""

    @pytest.mark.parametrize("reaper", [False, True], ids=["without a reaper", "with a reaper"])
    @pytest.mark.parametrize("call", ["ack", "nack", "extend", "fail", "progress"])
    def test_of_an_expired_lease_that_nobody_claimed(
        self, tasks: Queue, clock: engine_clock.Clock, call: str, reaper: bool
    ) -> None:
        tasks.enqueue("task", key="task")
        [late] = tasks.claim(lease_ms=1_000)
        clock.advance(seconds=1.001)
        if reaper:
            reap(tasks)
        with pytest.raises(LeaseLost):
            getattr(tasks, call)(late, *{"fail": ("why",), "progress": (1,)}.get(call, ()))
        assert claimed(other(tasks)) == ["task"]
        assert tasks.get_status("task").deliveries == 2  # type: ignore[union-attr]  # it is there

    def test_a_submit_on_time_counts_and_its_repeat_is_harmless(self, tasks: Queue, clock: engine_clock.Clock) -> None:
        tasks.enqueue("task", key="task")
        [job] = tasks.claim(lease_ms=1_000)
        clock.advance(seconds=1)
        assert tasks.ack(job, 42).repeated is False
        clock.advance(seconds=60)
        assert tasks.ack(job, 43).repeated is True
        assert tasks.get_result("task") == 42

    def test_a_task_whose_retention_is_over_is_unknown(self, tasks: Queue, clock: engine_clock.Clock) -> None:
        tasks.enqueue("task", key="task")
        [job] = tasks.claim()
        tasks.ack(job)
        clock.advance(days=1)
        with pytest.raises(JobNotFound):
            tasks.ack(job)


class TestWithoutAReaper:
    """What codeQ's background loops do is done by the next claim where no reaper runs."""

    def test_an_expired_lease_is_requeued_at_the_back(self, tasks: Queue, clock: engine_clock.Clock) -> None:
        slow = tasks.enqueue("slow").seq
        tasks.claim(lease_ms=1_000)
        tasks.enqueue("fresh")
        clock.advance(seconds=2)
        assert claimed(other(tasks), 1) == ["fresh"], "a claim that finds enough brings it back as well"
        assert LiveJob.objects.get(pk=slow).state == 0
        assert claimed(other(tasks), 1) == ["slow"]

    def test_the_last_delivery_that_expires_makes_a_dead_letter(self, tasks: Queue, clock: engine_clock.Clock) -> None:
        tasks.enqueue("slow", key="slow")
        for _ in range(5):
            [job] = tasks.claim(lease_ms=1_000)
            clock.advance(seconds=2)
        assert job.deliveries == 5
        tasks.enqueue("fresh")
        assert claimed(tasks) == ["fresh"]
        assert (tasks.counts().dead, tasks.counts().in_flight) == (1, 1)
        assert tasks.get_status("slow").error_type == "LEASE_EXPIRED"  # type: ignore[union-attr]  # it is there

    def test_a_due_task_is_pending(self, tasks: Queue, clock: engine_clock.Clock) -> None:
        tasks.enqueue("due", delay_ms=1_000, priority=9)
        tasks.enqueue("now")
        tasks.enqueue("next")
        assert claimed(tasks, 1) == ["now"]
        clock.advance(seconds=1)
        assert claimed(tasks, 1) == ["due"]

    @pytest.mark.parametrize("waiting", [0, 3])
    def test_a_dead_letter_past_its_time_is_removed(
        self, tasks: Queue, clock: engine_clock.Clock, waiting: int
    ) -> None:
        tasks.enqueue("dead")
        kill(tasks)
        tasks.enqueue_many(range(waiting))
        clock.advance(days=1)
        assert claimed(tasks, 1) == list(range(waiting))[:1]
        assert tasks.counts().dead == 0
        assert not DeadLetter.objects.exists()

    def test_one_that_is_not_past_its_time_stays(self, tasks: Queue, clock: engine_clock.Clock) -> None:
        for _ in range(2):
            tasks.enqueue("dead")
            kill(tasks)
            clock.advance(hours=13)
        assert claimed(tasks) == []
        assert tasks.counts().dead == 1

    def test_a_finished_task_and_its_key_are_forgotten(self, tasks: Queue, clock: engine_clock.Clock) -> None:
        tasks.enqueue("first", key="k")
        tasks.ack(tasks.claim()[0], 1)
        clock.advance(days=1)
        assert (tasks.get_status("k"), tasks.get_result("k")) == (None, None)
        assert tasks.enqueue("second", key="k").status == "queued"
        assert claimed(tasks) == ["second"]


class TestRetries:
    def test_no_retries(self) -> None:
        queue = Queue("once", preset="codeq", node="worker-1", max_deliveries=1)
        queue.enqueue("task", key="task")
        kill(queue, times=1)
        assert claimed(queue) == []

    def test_of_one_task(self, tasks: Queue) -> None:
        tasks.enqueue("task", max_deliveries=1)
        kill(tasks, times=1)
        assert claimed(tasks) == []
