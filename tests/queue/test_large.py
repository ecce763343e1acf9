"""Large payloads and results at the Python door: handles, buffers, waiting callers, consumers, the facades."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from django_leasequeue import BufferedQueue, Consumer, Queue, signals
from django_leasequeue.compat.jqueue import BrokerQueue, DirectQueue
from django_leasequeue.models import LiveJob
from tests.large import BIG, away, files, large_settings
from tests.support.heard import connected
from tests.support.threads import in_thread
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
BODY = bytes(range(256)) * 20


@pytest.fixture(autouse=True)
def storage(tmp_path: Path) -> Iterator[Path]:
    with large_settings(tmp_path, ASYNC="native"):
        yield tmp_path


@pytest.mark.parametrize("payload", [{"text": BIG}, BODY], ids=["json", "bytes"])
async def test_a_handle(storage: Path, payload: Any, closed_pools: None) -> None:
    queue = Queue("work", preset="jobqueue")
    whole = payload if isinstance(payload, bytes) else b'{"text":"' + BIG.encode() + b'"}'
    receipt = await queue.aenqueue(payload, key="a")
    page = await queue.alist_jobs()
    assert (page.jobs[0].data, page.jobs[0].body) == ((payload, None) if isinstance(payload, dict) else (None, payload))
    [job] = await queue.aclaim()
    assert job.payload == payload
    await queue.aack(job, payload, result_ttl_ms=60_000)
    assert await queue.aget_result("a") == payload
    assert b"".join([piece async for piece in queue.astream_result("a", 1_000)]) == whole
    assert await in_thread(lambda: b"".join(queue.stream_result("a", 1_000))) == whole
    again = await queue.aenqueue("x", key="a")
    assert (again.status, again.result, again.seq, len(files(storage))) == ("completed", payload, receipt.seq, 2)


async def test_a_buffer_and_a_caller_that_waits(closed_pools: None) -> None:
    async with BufferedQueue(Queue("work", preset="jobqueue")) as queue:

        async def answer() -> None:
            while not (jobs := await queue.aclaim(1)):
                await asyncio.sleep(0.05)
            await queue.aack(jobs[0], {"echo": jobs[0].payload}, result_ttl_ms=60_000)

        answering = asyncio.create_task(answer())
        assert await queue.aenqueue_and_wait({"text": BIG}, timeout=60) == {"echo": {"text": BIG}}
        await answering


@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "loop"])
def test_a_consumer_and_a_caller_that_waits(in_loop: bool) -> None:
    queue = Queue("work", preset="jobqueue")
    heard: list[Any] = []

    async def aecho(job: Any) -> Any:
        return job.payload

    with connected(signals.completed, lambda job, **_: heard.append(job.payload)):
        with Consumer(queue, aecho if in_loop else lambda job: job.payload, reaper=False, drain_timeout=5.0):
            for payload in (BODY, {"text": BIG}):
                assert queue.enqueue_and_wait(payload, timeout=60) == payload
    assert heard == [BODY, {"text": BIG}]


def test_a_result_that_cannot_be_stored_is_a_failed_attempt() -> None:
    queue = Queue("work", preset="jobqueue", max_deliveries=1, exhaust_at="release", dead_letter="self")
    receipt = queue.enqueue("x")
    with away(), Consumer(queue, lambda job: BIG, reaper=False, drain_timeout=5.0):
        eventually(lambda: LiveJob.objects.filter(seq=receipt.seq, state=3).exists(), "it is dead")
    assert LiveJob.objects.get(seq=receipt.seq).error_type == "django_leasequeue.exceptions.LargeStorageError"


@pytest.mark.parametrize("kind", [DirectQueue, BrokerQueue])
async def test_the_facade_of_jqueue(kind: type[DirectQueue], closed_pools: None) -> None:
    made = kind("jobs")
    async with made if isinstance(made, BrokerQueue) else nullcontext(made) as queue:
        await queue.enqueue("kind", BODY)
        [job] = await queue.dequeue("kind")
        assert job.payload == BODY
        assert [each.payload for each in (await queue.read_state()).jobs] == [BODY]
