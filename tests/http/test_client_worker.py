"""The client's worker, against real servers: what it runs, keeps, gives back, and how it ends."""

import asyncio
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest

from django_leasequeue import engine
from django_leasequeue.client import (
    Again,
    Client,
    ClientJob,
    EventTimeout,
    JobSteps,
    LeaseLost,
    Record,
    TopicNotFound,
    Worker,
    jobs,
)  # fmt: skip
from django_leasequeue.engine import NewJob, Node
from django_leasequeue.models import JobStep, LiveJob
from tests.http.servers import Relay, Server, serving
from tests.support.environment import child_environment
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("emptied")]


@pytest.fixture
def queue(client: Client, topic: str) -> str:
    client.put_topic(topic, type="queue", lease_ms=60_000)
    return topic


@contextmanager
def running(worker: Worker) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=worker.run, kwargs={"signals": False})
    thread.start()
    try:
        yield thread
    finally:
        worker.stop()
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    with Relay(server.port) as made:
        yield made


@pytest.fixture
def through(relay: Relay) -> Iterator[Client]:
    with Client(relay.address) as made:
        yield made


def counters(client: Client, queue: str) -> tuple[int, int, int]:
    """How many jobs are ready, in flight, and dead-lettered."""
    found = client.get_topic(queue)["queue"]
    return found["ready"], found["in_flight"], found["dead_lettered"]


def deadline(queue: str) -> float:
    (found,) = LiveJob.objects.filter(queue__name=queue).values_list("deadline", flat=True)
    return found.timestamp()


def empty(client: Client, queue: str) -> Callable[[], bool]:
    return lambda: client.get_topic(queue)["count"] == 0


def in_thread(seen: list[Any]) -> Callable[[ClientJob], Any]:
    return lambda job: seen.append(job.data)


def in_loop(seen: list[Any]) -> Callable[[ClientJob], Any]:
    async def handler(job: ClientJob) -> None:
        await asyncio.sleep(0)
        seen.append(job.data)

    return handler


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("handler", [in_thread, in_loop])
@pytest.mark.sample
def test_every_job_runs_once(client: Client, queue: str, stream: bool, handler: Any) -> None:
    seen: list[int] = []
    client.produce(queue, [Record(n) for n in range(200)])
    with running(Worker(client, queue, handler(seen), concurrency=16, stream=stream)):
        eventually(empty(client, queue))
        client.produce(queue, [Record(200)])
        eventually(empty(client, queue))
    assert Counter(seen) == Counter(range(201))


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("stream", [True, False])
def test_a_cancelled_workflow_stops_what_runs(client: Client, queue: str, stream: bool) -> None:
    began: list[int] = []

    async def sleep(job: ClientJob) -> None:
        began.append(job.seq)
        await asyncio.sleep(60)

    uid = uuid4()
    with running(Worker(client, queue, sleep, lease_ms=1_500, stream=stream)):
        engine.run(engine.start_workflow([Node(queue, NewJob(1)), Node(queue, NewJob(2), (0,))], uid))
        eventually(lambda: began)
        engine.run(engine.cancel_workflow(uid))
        eventually(lambda: engine.run(engine.get_workflow(uid)).cancelled == 2)
    # Where the machine stood still for a lease, the first job began twice; the second one never does.
    assert len(set(began)) == 1


def test_acks_go_together(client: Client, relay: Relay, through: Client, queue: str) -> None:
    seen: list[int] = []
    client.produce(queue, [Record(n) for n in range(300)])
    with running(Worker(through, queue, in_loop(seen), concurrency=100)):
        eventually(empty(client, queue))
    assert relay.count(f"POST /v0/topics/{queue}/ack ") < 100
    assert len(seen) == 300


@pytest.mark.slow
def test_a_job_that_fails_comes_again(client: Client, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    deliveries: list[int] = []

    def handler(job: ClientJob) -> None:
        deliveries.append(job.deliveries)
        if job.deliveries < 3:
            raise ValueError("not yet")

    client.produce(queue, [Record(1)])
    with running(Worker(client, queue, handler, retry_delay=lambda job: 0.05 * job.deliveries)):
        eventually(empty(client, queue))
    assert deliveries == [1, 2, 3]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2
    assert "delivered again in 50 ms" in errors[0].getMessage()
    assert "not yet" in (errors[0].exc_text or "")


@pytest.mark.slow
@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_whatever_a_function_raises_its_job_comes_again(client: Client, queue: str, error: BaseException) -> None:
    deliveries: list[int] = []

    def handler(job: ClientJob) -> None:
        deliveries.append(job.deliveries)
        if job.deliveries < 2:
            raise error

    client.produce(queue, [Record(1)])
    with running(Worker(client, queue, handler, concurrency=1, retry_delay=lambda job: 0.05)):
        eventually(empty(client, queue))
    assert deliveries == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("delay", [math.nan, math.inf, None])
def test_a_delay_that_is_no_number_is_the_default_one(client: Client, queue: str, delay: Any) -> None:
    def handler(job: ClientJob) -> None:
        if job.deliveries < 2:
            raise Again(delay)

    client.produce(queue, [Record(1)])
    with running(Worker(client, queue, handler, stream=False, retry_delay=lambda job: delay)):
        eventually(empty(client, queue))


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
def test_a_handler_asks_for_another_time(client: Client, queue: str, stream: bool, caplog: Any) -> None:
    times: list[float] = []

    async def handler(job: ClientJob) -> None:
        times.append(time.monotonic())
        if job.deliveries == 1:
            raise Again(0.3)

    client.produce(queue, [Record(1)])
    with running(Worker(client, queue, handler, stream=stream, poll_seconds=0.05)):
        eventually(empty(client, queue))
    assert len(times) == 2
    assert times[1] - times[0] >= 0.3
    assert not [record for record in caplog.records if record.levelno == logging.ERROR]


@pytest.mark.parametrize("stream", [True, False])
def test_leases_are_kept_while_a_job_runs(client: Client, queue: str, stream: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(jobs, "BEATS", 300)
    runs: list[int] = []
    go_on = threading.Event()

    def handler(job: ClientJob) -> None:
        runs.append(job.deliveries)
        go_on.wait(60)

    client.produce(queue, [Record(1)])
    with running(Worker(client, queue, handler, lease_ms=60_000, stream=stream)):
        eventually(lambda: runs == [1])
        for _ in range(2):
            before = deadline(queue)
            eventually(lambda before=before: deadline(queue) > before)
        go_on.set()
        eventually(empty(client, queue))
    assert runs == [1]


@pytest.mark.slow
def test_a_lost_lease_cancels_a_coroutine(client: Client, relay: Relay, through: Client, queue: str) -> None:
    seen: list[tuple[int, str]] = []

    async def handler(job: ClientJob) -> None:
        try:
            if job.deliveries == 1:
                seen.append((job.deliveries, "begins"))
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append((job.deliveries, f"cancelled, lost: {job.lost}"))
            raise
        seen.append((job.deliveries, "done"))

    client.produce(queue, [Record(1)])
    with running(Worker(through, queue, handler)):
        eventually(lambda: bool(seen))
        relay.cut()  # the server takes the job back
        eventually(empty(client, queue))
    assert seen == [(1, "begins"), (1, "cancelled, lost: True"), (2, "done")]


def test_a_job_that_comes_again_waits_for_its_lost_run(
    client: Client, relay: Relay, through: Client, queue: str
) -> None:
    """A thread cannot be ended: the second run begins when the first is over, and only the second counts."""
    log: list[tuple[str, int, bool]] = []
    go_on = threading.Event()

    def handler(job: ClientJob) -> None:
        log.append(("begins", job.deliveries, job.lost))
        if job.deliveries == 1:
            go_on.wait(60)
        log.append(("ends", job.deliveries, job.lost))

    client.produce(queue, [Record(1)])
    with running(Worker(through, queue, handler)):
        eventually(lambda: bool(log))
        relay.cut()
        # The stream is open again, and the job was delivered a second time.
        eventually(lambda: relay.count(f"GET /v0/topics/{queue}/work") == 2)
        eventually(lambda: counters(client, queue)[1] == 1)
        assert len(log) == 1
        go_on.set()
        eventually(empty(client, queue))
    assert log == [("begins", 1, False), ("ends", 1, True), ("begins", 2, False), ("ends", 2, False)]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
def test_a_job_is_told_before_its_lease_is_over_while_heartbeats_hang(
    client: Client, relay: Relay, through: Client, queue: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second before the end is told; here so long that a busy machine does not come too late.
    monkeypatch.setattr(jobs, "NOTICE", 56.0)
    monkeypatch.setattr(jobs, "NOTICE_SHARE", 1.0)
    monkeypatch.setattr(jobs, "BEATS", 300)
    began = threading.Event()
    told: list[float] = []

    def handler(job: ClientJob) -> None:
        began.set()
        ends = time.monotonic() + 60
        while not job.lost and time.monotonic() < ends:
            time.sleep(0.01)
        told.append(time.time())

    client.produce(queue, [Record(1)])
    with running(Worker(through, queue, handler, stream=stream, lease_ms=60_000, drain_seconds=0)):
        assert began.wait(60)
        relay.hang()
        eventually(lambda: bool(told))
        assert told[0] < deadline(queue)
        relay.heal()


@pytest.mark.slow
@pytest.mark.parametrize("clock", ["known", "unknown", "set forward"])
def test_a_job_that_comes_late(client: Client, relay: Relay, through: Client, queue: str, clock: str) -> None:
    seen: list[int] = []
    worker = Worker(through, queue, in_thread(seen), node="slow", lease_ms=1_000)
    with running(worker):
        if clock == "unknown":
            eventually(lambda: relay.accepted > 0)
        else:
            client.produce(queue, [Record(1)])
            eventually(empty(client, queue))
        if clock == "set forward":
            # What the worker has learned of the server's clock is from before the step.
            worker._leases._clock_difference = (worker._leases._clock_difference or 0) + 600
        relay.hang(answers_only=True)
        client.produce(queue, [Record(2)])
        taken: list[ClientJob] = []
        # Pushed to the worker, which does not get it; and leased to another when that lease is over.
        eventually(lambda: counters(client, queue)[1] == 1)
        eventually(lambda: bool(taken.extend(client.claim(queue, "other", lease_ms=60_000)) or taken))
        assert taken[0].deliveries > 1
        relay.heal()
        client.produce(queue, [Record(3)])
        eventually(lambda: 3 in seen)
        assert 2 not in seen
        client.ack(queue, "other", taken)


@pytest.mark.slow
def test_of_two_deliveries_held_up_the_later_starts(client: Client, relay: Relay, through: Client, queue: str) -> None:
    """A heartbeat names jobs by their numbers: the answer for the later delivery is none for the earlier one."""
    seen: list[int] = []
    with running(Worker(through, queue, lambda job: seen.append(job.deliveries), node="slow", lease_ms=1_000)):
        eventually(lambda: relay.accepted > 0)
        relay.hang(answers_only=True)
        client.produce(queue, [Record(1)])
        jobs = LiveJob.objects.filter(queue__name=queue, deadline__isnull=False)
        eventually(jobs.filter(deliveries__gt=1).exists)
        relay.heal()
        eventually(empty(client, queue))
    assert len(seen) == 1
    assert seen[0] > 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_stop_waits_for_running_jobs_and_takes_no_more(client: Client, queue: str, stream: bool) -> None:
    began, go_on = threading.Event(), threading.Event()

    def handler(job: ClientJob) -> None:
        began.set()
        go_on.wait(60)

    client.produce(queue, [Record(n) for n in range(3)])
    worker = Worker(client, queue, handler, concurrency=1, stream=stream)
    with running(worker) as thread:
        assert began.wait(60)
        worker.stop()
        time.sleep(0.3)
        assert thread.is_alive()
        go_on.set()
    # The server notices that the stream is gone, and takes back what it had just dealt to it.
    eventually(lambda: counters(client, queue) == (2, 0, 0))


def test_a_stop_gives_back_what_takes_too_long(client: Client, queue: str) -> None:
    began, ends = threading.Event(), threading.Event()
    held: list[ClientJob] = []

    def handler(job: ClientJob) -> None:
        held.append(job)
        began.set()
        ends.wait(60)

    client.produce(queue, [Record(1)])
    with running(Worker(client, queue, handler, stream=False, drain_seconds=0.1)):
        assert began.wait(60)
    assert held[0].lost
    assert counters(client, queue)[0] == 1
    ends.set()


@pytest.mark.slow
def test_a_server_that_is_replaced(client: Client, servers: list[Server], test_database_url: str, queue: str) -> None:
    done: list[int] = []

    async def handler(job: ClientJob) -> None:
        await asyncio.sleep(0.02)
        done.append(job.data)

    client.produce(queue, [Record(n) for n in range(120)])
    for (old,) in serving(child_environment(test_database_url)):
        with Relay(old.port) as relay, running(Worker(Client(relay.address), queue, handler, concurrency=4)):
            eventually(lambda: len(done) > 20)
            relay.lead_to(servers[1].port)
            assert old.stop() is not None
            eventually(empty(client, queue))
    assert set(done) == set(range(120))
    # Only what ran while the stream ended ran again.
    assert len(done) <= 120 + 4


@pytest.mark.slow
def test_a_deleted_topic_and_what_the_server_refuses_end_the_worker(client: Client, queue: str) -> None:
    client.produce(queue, [Record(1)])
    with ThreadResult(lambda: Worker(client, queue, print).run(signals=False)) as running:
        eventually(empty(client, queue))
        client.delete_topic(queue)
        with pytest.raises(TopicNotFound):
            running.value(60)
    for stream in (True, False):
        with pytest.raises(TopicNotFound):
            Worker(client, queue, print, stream=stream).run(signals=False)


@pytest.mark.slow
def test_steps_sleeps_and_events(client: Client, queue: str) -> None:
    done: list[str] = []
    event = f"packed {queue}"

    async def charge(order: int) -> dict[str, int]:
        done.append("charge")
        return {"payment": order}

    async def handler(job: ClientJob) -> None:
        payment = await job.steps.step("charge", charge, job.data)
        await job.steps.sleep("cool off", seconds=0.2)
        parcel = await job.steps.wait_for(event, timeout=60)
        with suppress(EventTimeout):
            await job.steps.wait_for("never", timeout=0.1)
        for _ in range(2):
            await job.steps.step("mail", done.append, f"{payment} {parcel}")

    (seq,) = client.produce(queue, [Record(7)]).seqs
    with running(Worker(client, queue, handler, stream=False, poll_seconds=0.1)):
        eventually(lambda: JobStep.objects.filter(seq=seq, event=event).exists(), "it waits")
        assert client.emit(event, "box 3")
        assert not client.emit(event, "box 4")
        eventually(lambda: len(done) == 3, "it goes on")
        eventually(lambda: counters(client, queue) == (0, 0, 0), "it is done")
    assert done == ["charge", *["{'payment': 7} box 3"] * 2]
    names = set(JobStep.objects.filter(seq=seq).values_list("name", flat=True))
    assert names == {"charge", "cool off", f"event {event}", "event never", "mail", "mail#2"}


def test_without_its_lease_nothing_is_kept(client: Client, queue: str) -> None:
    client.produce(queue, [Record(7)])
    (job,) = client.claim(queue, "w")
    client.nack(queue, "w", [job])
    steps = JobSteps(client, "w", job)
    with pytest.raises(LeaseLost):
        steps.step("a", str)
    assert job.lost


def test_a_process_that_stood_still_before_the_thread_began(client: Client, queue: str, monkeypatch: Any) -> None:
    may_start, deliveries = jobs.Leases.may_start, []

    async def stopped_after(self: jobs.Leases, job: ClientJob) -> bool:
        answer = await may_start(self, job)
        if job.deliveries == 1:
            self._good_until[job] = 0
        return answer

    monkeypatch.setattr(jobs.Leases, "may_start", stopped_after)
    client.produce(queue, [Record(7)])
    with running(Worker(client, queue, lambda job: deliveries.append(job.deliveries), lease_ms=500)):
        eventually(lambda: counters(client, queue) == (0, 0, 0), "it is done")
    assert deliveries
    assert 1 not in deliveries
