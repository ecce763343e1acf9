"""codeQ's queue by the preset ``codeq``: what its documentation promises, and what must hold without any reaper."""

from typing import Any

import pytest

from django_leasequeue import Queue, engine
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.exceptions import LeaseLost
from django_leasequeue.models import DeadLetter, LiveJob
from django_leasequeue.queue.base import run
from tests.support.documents import blocks

pytestmark = pytest.mark.django_db

PAGE = "how-to/move-from-codeq.md"


@pytest.fixture
def tasks() -> Queue:
    return Queue("tasks", preset="codeq", node="worker-1")


def other(queue: Queue) -> Queue:
    return Queue(queue.name, node="worker-2")


def reap(queue: Queue) -> None:
    info = queue.info()
    for duty in (engine.sweep, engine.promote, engine.expire):
        run(duty([info.id]), queue.using)
    run(engine.expire_results(), queue.using)


def claimed(queue: Queue, size: int = 10, **options: Any) -> list[Any]:
    return [job.payload for job in queue.claim(size, **options)]


def kill(queue: Queue, times: int = 5) -> None:
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
