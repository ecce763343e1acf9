"""Large payloads and results at the Python door: handles, buffers, waiting callers, consumers, the facades."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_leasequeue import BufferedQueue, Consumer, Queue, signals
from django_leasequeue.compat import jobqueue
from django_leasequeue.compat.jqueue import BrokerQueue, DirectQueue
from django_leasequeue.exceptions import LargeStorageError
from django_leasequeue.models import LargeObject, LiveJob
from tests.large import BIG, away, files, large_settings, reap
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
BODY = bytes(range(256)) * 20


@pytest.fixture(autouse=True)
def storage(tmp_path: Path) -> Iterator[Path]:
    with large_settings(tmp_path, ASYNC="native"):
        yield tmp_path


@pytest.mark.parametrize("payload", [{"text": BIG}, BODY], ids=["json", "bytes"])
def test_a_handle(storage: Path, payload: Any) -> None:
    queue = Queue("work", preset="jobqueue")
    receipt = queue.enqueue(payload, key="a")
    [job] = queue.claim()
    assert job.payload == payload
    queue.ack(job, payload, result_ttl_ms=60_000)
    assert queue.get_result("a") == payload
    assert b"".join(queue.stream_result("a", 1_000)) == (
        payload if isinstance(payload, bytes) else b'{"text":"' + BIG.encode() + b'"}'
    )
    again = queue.enqueue("x", key="a")
    assert (again.status, again.result, again.seq) == ("completed", payload, receipt.seq)
    assert [row.data for row in queue.list_jobs().jobs] == []
    assert len(files(storage)) == 2


@pytest.mark.parametrize("payload", [{"text": BIG}, BODY], ids=["json", "bytes"])
async def test_a_handle_in_coroutines(payload: Any, closed_pools: None) -> None:
    queue = Queue("work", preset="jobqueue")
    await queue.aenqueue(payload, key="a")
    page = await queue.alist_jobs()
    assert (page.jobs[0].data, page.jobs[0].body) == ((payload, None) if isinstance(payload, dict) else (None, payload))
    [job] = await queue.aclaim()
    assert job.payload == payload
    await queue.aack(job, payload, result_ttl_ms=60_000)
    assert await queue.aget_result("a") == payload
    pieces = [piece async for piece in queue.astream_result("a", 1_000)]
    assert b"".join(pieces) == (payload if isinstance(payload, bytes) else b'{"text":"' + BIG.encode() + b'"}')


async def test_a_buffer_and_a_caller_that_waits(closed_pools: None) -> None:
    async with BufferedQueue(Queue("work", preset="jobqueue")) as queue:

        async def answer() -> None:
            while not (jobs := await queue.aclaim(1)):
                await asyncio.sleep(0.05)
            await queue.aack(jobs[0], {"echo": jobs[0].payload}, result_ttl_ms=60_000)

        answering = asyncio.create_task(answer())
        assert await queue.aenqueue_and_wait({"text": BIG}, timeout=60) == {"echo": {"text": BIG}}
        await answering


def heard_payload(heard: list[Any]) -> Any:
    return lambda *, job, **_: heard.append(job.payload)


@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "loop"])
def test_a_consumer_and_a_caller_that_waits(in_loop: bool) -> None:
    queue = Queue("work", preset="jobqueue")

    def echo(job: Any) -> Any:
        return job.payload

    async def aecho(job: Any) -> Any:
        return job.payload

    heard: list[Any] = []
    listener = heard_payload(heard)
    signals.completed.connect(listener)
    try:
        with Consumer(queue, aecho if in_loop else echo, reaper=False, drain_timeout=5.0):
            assert queue.enqueue_and_wait(BODY, timeout=60) == BODY
            assert queue.enqueue_and_wait({"text": BIG}, timeout=60) == {"text": BIG}
    finally:
        signals.completed.disconnect(listener)
    assert heard == [BODY, {"text": BIG}]


def test_away_at_run_the_job_goes_back_and_it_does_not_count() -> None:
    queue = Queue("work", preset="jobqueue", max_deliveries=1, exhaust_at="release")
    receipt = queue.enqueue({"text": BIG}, key="a")
    ran: list[Any] = []
    with away(), Consumer(queue, lambda job: ran.append(job.payload), reaper=False, drain_timeout=5.0):
        eventually(lambda: LiveJob.objects.filter(seq=receipt.seq, state=1).exists(), "it is delayed")
    assert ran == []
    job = LiveJob.objects.get(seq=receipt.seq)
    assert (job.state, job.deliveries, job.error) == (1, 0, None)


def test_a_result_that_cannot_be_stored_is_a_failed_attempt() -> None:
    queue = Queue("work", preset="jobqueue", max_deliveries=1, exhaust_at="release", dead_letter="self")
    receipt = queue.enqueue("x")
    with away(), Consumer(queue, lambda job: BIG, reaper=False, drain_timeout=5.0):
        eventually(lambda: LiveJob.objects.filter(seq=receipt.seq, state=3).exists(), "it is dead")
    assert LiveJob.objects.get(seq=receipt.seq).error_type == "django_leasequeue.exceptions.LargeStorageError"


def test_away_at_enqueue() -> None:
    queue = Queue("work", preset="jobqueue")
    with away(), pytest.raises(LargeStorageError):
        queue.enqueue({"text": BIG})
    assert not LiveJob.objects.exists()


@pytest.mark.parametrize("kind", ["direct", "broker"])
async def test_the_facade_of_jqueue(kind: str, closed_pools: None) -> None:
    if kind == "direct":
        queue: Any = DirectQueue("jobs")
        await queue.enqueue("kind", BODY)
        [job] = await queue.dequeue("kind")
        assert job.payload == BODY
        state = await queue.read_state()
        assert [each.payload for each in state.jobs] == [BODY]
        return
    async with BrokerQueue("jobs") as queue:
        await queue.enqueue("kind", BODY)
        [job] = await queue.dequeue("kind")
        assert job.payload == BODY


def test_the_facade_of_job_queue() -> None:
    with jobqueue.Queue("jobs") as queue:
        queue.execute(lambda job: job.payload)
        assert queue.enqueue_and_wait("a", {"text": BIG}, timeout=60) == {"text": BIG}


def test_objects_go_when_a_job_without_a_result_is_done(storage: Path) -> None:
    queue = Queue("work", preset="jqueue")
    queue.enqueue({"text": BIG})
    [job] = queue.claim()
    queue.ack(job)
    reap()
    assert (files(storage), LargeObject.objects.count()) == ([], 0)
