"""What a worker holds: renewed, lost, given back; and how much it claims ahead."""

import threading
import time
from contextlib import ExitStack

import pytest

from django_leasequeue import engine
from django_leasequeue.enums import JobFlag
from django_leasequeue.models import Claim, FloorKind, JobEvent, JobResult, LiveJob, Queue, QueueFloor
from django_leasequeue.worker import JobControl
from django_leasequeue.worker.held import Leases
from tests.engine.helpers import errors_of
from tests.support.waiting import eventually
from tests.worker.handlers import ScriptHandler
from tests.worker.support import Threaded, a_job, burst, enqueue, ready, results, take_away, working

pytestmark = pytest.mark.usefixtures("work")

EXTENDED, RELEASED, EXPIRED = 3, 4, 7


class Gate(ScriptHandler):
    """Remembers what ran; jobs that are told nothing else wait until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.controls: list[JobControl] = []
        self.open = threading.Event()

    @property
    def ran(self) -> list[str | None]:
        return [control.job.key for control in self.controls]

    def run(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        self.controls.append(control)
        if "do" in job.data:
            return super().run(job, control)
        self.open.wait(600)
        return None

    async def arun(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        self.controls.append(control)
        return await super().arun(job, control)


def short_leases(milliseconds: int) -> None:
    engine.run(engine.configure("work", preset="django", lease_ms=milliseconds, backoff="fixed", backoff_base_ms=20))


@pytest.mark.slow
def test_running_and_waiting_jobs_outlive_their_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    # What waits long is not given back.
    monkeypatch.setattr("django_leasequeue.worker.keeper.PRESENCE", 3_600)
    short_leases(20_000)
    gate = Gate()
    enqueue(*({} for _ in range(6)))
    with working(gate, concurrency=1, prefetch=10) as threaded:
        eventually(lambda: gate.ran and len(threaded.state.held) >= 2, "one runs, another waits")
        ends = max(claim.deadline.timestamp() for claim in Claim.objects.all())
        eventually(lambda: time.time() > ends, "the leases of their claims would be over")
        gate.open.set()
        eventually(lambda: len(results()) == 6, "all are done")
        assert threaded.state.figures.lost == 0
    assert set(JobResult.objects.values_list("deliveries", flat=True)) == {1}
    assert JobEvent.objects.filter(kind=EXTENDED).exists()
    assert not JobEvent.objects.filter(kind=EXPIRED).exists()


@pytest.mark.parametrize(("admitted_at", "last"), [(0.0, 100.04), (100.5, 100.54)])
def test_a_job_under_a_rate_starts_at_once_or_not_at_all(admitted_at: float, last: float) -> None:
    """At once is after its admission, which comes after what the claim waits for."""
    plain, rated = a_job(), a_job()._replace(flags=int(JobFlag.RATED), claimed_epoch=7.0, deadline_epoch=37.0)
    lease = Leases({}).add(rated, 100.0, admitted_at)
    assert not lease.forbids(rated, last - 0.01)
    assert lease.forbids(rated, last + 0.01)
    lease.renew(last, 30.0)
    assert lease.forbids(rated, last + 0.01)
    assert not lease.forbids(plain._replace(flags=0), last + 0.01)


@pytest.mark.slow
def test_a_lease_is_remembered_while_its_jobs_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.worker.held.MANY", 1)
    enqueue(*({"do": "sleep", "seconds": 0.002} for _ in range(300)))
    done = burst(concurrency=2, prefetch=5)
    assert (done.state.figures.completed, done.state.figures.returned) == (300, 0)
    assert not JobEvent.objects.filter(kind=EXTENDED).exists(), "short jobs of long leases are not renewed"
    assert len(done.state.leases.of) < 30


@pytest.mark.slow
@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "loop"])
def test_a_lost_lease_is_told_to_the_job_and_its_result_does_not_count(in_loop: bool) -> None:
    short_leases(10_000)
    (seq,) = enqueue({"do": "wait", "async": in_loop})
    handler = Gate()
    with working(handler) as threaded:
        eventually(lambda: handler.controls, "the job runs")
        taken = take_away(seq)
        eventually(lambda: handler.controls[0].lost, "the job is told")
        assert handler.controls[0].reason == "lease_lost"
        eventually(lambda: threaded.state.figures.lost == 1, "it is counted")
        assert handler.told == []
        # The other one's lease was not touched.
        settled = engine.run(engine.finish([engine.Ending(seq, taken.token, 5)], "another"))
        assert settled.ok == [seq]
    assert JobResult.objects.get().result == 5


@pytest.mark.slow
def test_a_waiting_job_whose_lease_is_lost_does_not_start() -> None:
    short_leases(10_000)
    gate = Gate()
    enqueue({}, {})
    with working(gate, concurrency=1, prefetch=10) as threaded:
        eventually(lambda: gate.ran, "it runs")
        eventually(lambda: len(threaded.state.held) == 2, "the second is claimed ahead")
        second = LiveJob.objects.get(key="1")
        taken = take_away(second.seq)
        eventually(lambda: second.seq not in threaded.state.held, "the worker knows")
        gate.open.set()
        eventually(lambda: results() == {"0": 1}, "the first is done")
        assert gate.ran == ["0"]
    assert LiveJob.objects.get().claim == taken.token


@pytest.mark.parametrize(("options", "most"), [({}, 4 + 4 + 1), ({"prefetch": 0}, 4)], ids=str)
def test_long_jobs_are_not_hoarded(options: dict[str, int], most: int) -> None:
    gate = Gate()
    enqueue(*({} for _ in range(300)))
    with working(gate, concurrency=4, **options) as threaded:
        eventually(lambda: len(gate.ran) == 4, "four run")
        time.sleep(0.5)
        assert 4 <= len(threaded.state.held) <= most
        gate.open.set()
        eventually(lambda: len(results()) == 300, "all are done")


@pytest.mark.slow
def test_jobs_claimed_when_jobs_were_short_are_given_back_when_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.worker.keeper.PRESENCE", 0.3)
    enqueue(*({"do": "sleep", "seconds": 0 if n < 3_000 else 60} for n in range(4_000)))
    with working(concurrency=2):
        eventually(lambda: len(results()) >= 3_000, "the short ones are done")
        eventually(lambda: ready() >= 900, "others could have the long ones")
    returned = JobEvent.objects.filter(kind=RELEASED, detail__unstarted=True).count()
    # More than a worker holds of long jobs: two that run, two for them to go on with, one on its way.
    assert returned > 5
    assert set(LiveJob.objects.filter(state=0).values_list("deliveries", flat=True)) <= {0, 1}


@pytest.mark.slow
def test_a_worker_raises_the_floors_of_its_queues_while_it_is_busy() -> None:
    """Without any reaper; and it leaves them alone when it has nothing to do."""
    queue = Queue.objects.get(name="work").pk
    other = engine.run(engine.create("other")) and Queue.objects.get(name="other").pk
    floors = QueueFloor.objects.filter(kind=FloorKind.READY)
    seqs = enqueue(*({} for _ in range(50)))
    handler = Breeding()
    with working(handler, concurrency=2):
        eventually(lambda: floors.filter(queue_id=queue, value__gt=seqs[0]).exists(), "it rises while jobs run")
        eventually(lambda: JobResult.objects.count() > 400, "many are done")
        handler.enough.set()
        eventually(lambda: not LiveJob.objects.exists(), "all are done")
        last = JobResult.objects.order_by("seq").values_list("seq", flat=True).last() or 0
        eventually(lambda: floors.filter(queue_id=queue, value__gt=last - 200).exists(), "it follows")
        looks: list[list[int]] = []

        def rests() -> bool:
            looks.append(list(QueueFloor.objects.values_list("pk", flat=True)))
            time.sleep(1)
            return len(looks) > 1 and looks[-1] == looks[-2]

        eventually(rests, "it leaves them alone")
    assert not floors.filter(queue_id=other).exists()


class Breeding(ScriptHandler):
    def __init__(self) -> None:
        super().__init__()
        self.enough = threading.Event()

    def run(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        if not self.enough.is_set():
            engine.run(engine.enqueue("work", [engine.NewJob()]))
        return None


def test_memory_of_what_is_held_is_bounded_when_settling_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue(*({} for _ in range(2_000)))
    stall = threading.Event()
    threaded = Threaded(concurrency=1, prefetch=50)
    monkeypatch.setattr(threaded.worker._acknowledger, "_settle_bisecting", lambda *_: stall.wait())
    with threaded, ExitStack() as stack:
        stack.callback(stall.set)
        # A claim of the largest size, twice what is fetched ahead, a thread and a coroutine.
        most = 1_000 + 2 * 50 + 1 + 1
        eventually(lambda: len(threaded.state.held) >= 1_000, "it claimed what it may")
        time.sleep(0.5)
        assert len(threaded.state.held) <= most
        settling = 2 * threaded.state.options.ack_batch
        assert ready() >= 2_000 - most - settling


def test_a_stop_gives_back_what_has_not_started_and_waits_for_what_has() -> None:
    gate = Gate()
    seqs = enqueue(*({} for _ in range(20)))
    with working(gate, concurrency=2, prefetch=10) as threaded:
        eventually(lambda: len(gate.ran) == 2 and len(threaded.state.held) > 2, "some wait")
        threaded.state.ask_stop("the test")
        eventually(lambda: ready() == 18, "they are back while two still run")
        assert (len(threaded.state.held), threaded.code) == (2, None)
        gate.open.set()
        assert threaded.join() == 0
    assert set(results()) == {"0", "1"}
    left = LiveJob.objects.order_by("seq")
    assert [job.seq for job in left] == seqs[2:]
    assert {job.deliveries for job in left} == {0}, "what never started does not count as a delivery"


def test_a_claim_under_way_when_the_worker_stops_is_given_back() -> None:
    enqueue(*({} for _ in range(5)))
    threaded = Threaded()
    jobs = engine.run(engine.claim("work", threaded.state.node, 5))
    threaded.state.draining.set()
    threaded.worker._fetcher._dispatch(jobs, time.monotonic())
    with threaded:
        assert threaded.stop() == 0
    assert (threaded.state.figures.returned, ready(), results()) == (5, 5, {})


@pytest.mark.slow
def test_a_stop_ends_at_its_deadline_and_tells_running_jobs_who_may_not_listen(work: str) -> None:
    gate = Gate()
    enqueue({})
    with working(gate, drain_timeout=0.1) as threaded:
        eventually(lambda: gate.ran, "it runs")
        threaded.state.ask_stop("the test")
        assert threaded.join() == 3
        assert ready() == 1
        assert not threaded.worker.clean
        gate.open.set()
    assert results() == {}
    engine.run(engine.purge("work"))
    enqueue({"do": "wait"}, {"do": "wait", "async": True})
    with working(concurrency=1, drain_timeout=0.2) as threaded:
        eventually(lambda: len(threaded.state.running()) == 2, "both run")
        threaded.state.ask_stop("the test")
        assert threaded.join() == 3
    # They raised when they were told: that is no failure, but it was a delivery.
    assert [(job.state, job.deliveries, errors_of(job.seq)) for job in LiveJob.objects.all()] == [(0, 1, None)] * 2
