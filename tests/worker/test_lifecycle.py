"""How a worker waits for jobs, shows that it lives, loses its connections, and ends."""

import sys
import threading
import time
from typing import Any

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.models import JobResult, LiveJob, Worker
from django_leasequeue.notify import close_listeners, listener
from django_leasequeue.notify.session import Session
from django_leasequeue.reaper import Duty, DutyRun, Reaper
from django_leasequeue.worker import ExitCode, JobControl, queue_names, threads
from tests.engine.helpers import run
from tests.support.rows import rows
from tests.support.waiting import eventually
from tests.worker.handlers import ScriptHandler
from tests.worker.support import NEVER, Threaded, at_first_claim, burst, enqueue, results, working

pytestmark = pytest.mark.usefixtures("work")


class Clocked(ScriptHandler):
    def __init__(self) -> None:
        super().__init__()
        self.started: dict[str | None, float] = {}

    def run(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        self.started[job.key] = time.monotonic()
        return super().run(job, control)


@pytest.mark.slow
@pytest.mark.parametrize("queues", [(), ("work",)], ids=["all", "named"])
def test_an_idle_worker_is_told_of_every_job(queues: tuple[str, ...]) -> None:
    handler = Clocked()
    with working(handler, poll=NEVER, queues=queues):
        for number in range(100):
            engine.run(engine.enqueue("work", [engine.NewJob(key=f"{number}")]))
            eventually(lambda number=number: str(number) in handler.started, f"job {number} starts")


def test_the_reaper_begins_after_the_first_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed: list[int] = []
    start = Reaper.start

    def note(reaper: Reaper) -> None:
        claimed.append(worker.state.figures.claimed)
        start(reaper)

    monkeypatch.setattr(Reaper, "start", note)
    enqueue({})
    worker = working(node="here", reaper=True)  # before it starts: its reaper may begin at once
    with worker:
        eventually(lambda: claimed, "the reaper begins")
        assert ("leasequeue claim here",) in run("SELECT application_name FROM pg_stat_activity")
    assert claimed == [1]


def test_a_worker_whose_reaper_has_a_late_duty_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(turn: DutyRun) -> None:
        sys.exit("bad module")

    monkeypatch.setattr("django_leasequeue.reaper.duty.SHORTEST", 0.05)
    monkeypatch.setattr("django_leasequeue.reaper.reaper.standard_duties", lambda: [Duty("leaves", leave, 0.05)])
    with working(reaper=True) as threaded:
        late = {"leads": True, "late": {"leaves": "SystemExit: bad module"}}
        eventually(lambda: threaded.worker.report()[1].get("reaper") == late, "a duty is late")
        assert not threaded.worker.healthy


def test_a_delayed_job_starts_when_it_is_due_without_anybody_s_help() -> None:
    began = time.monotonic()
    engine.run(engine.enqueue("work", [engine.NewJob(key="later", delay_ms=500)]))
    handler = Clocked()
    with working(handler, poll=NEVER):
        eventually(lambda: handler.started, "it starts")
    assert handler.started["later"] - began >= 0.5


@pytest.mark.parametrize("queues", [(), ("fresh",)], ids=["all", "one that it makes"])
def test_a_queue_made_while_the_worker_idles_is_taken(queues: tuple[str, ...]) -> None:
    assert burst().code is ExitCode.OK, "without jobs it ends at once"
    with working(poll=NEVER, queues=queues) as threaded:
        if queues:
            eventually(lambda: engine.run(engine.get("fresh")), "the queue is there")
        eventually(lambda: threaded.worker.healthy, "it idles")
        engine.run(engine.enqueue("fresh", [engine.NewJob(key="first")]))
        eventually(lambda: results() == {"first": 1}, "it is done")


def test_a_queue_made_before_the_worker_listens_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    may_connect = threading.Event()

    class Late(Session):
        def __init__(self, *args: Any) -> None:
            assert may_connect.wait(60)
            super().__init__(*args)

    monkeypatch.setattr(listener, "Session", Late)
    close_listeners()
    with working(poll=NEVER) as threaded:
        eventually(lambda: "work" in threaded.state.queues, "the list is read")
        engine.run(engine.enqueue("fresh", [engine.NewJob(key="first")]))
        may_connect.set()
        eventually(lambda: results() == {"first": 1}, "it is done")


def test_a_queue_announced_while_the_list_is_read_makes_the_worker_read_again() -> None:
    class Link:
        reads = 0

        def run(self, reading: Any) -> dict[str, int]:
            self.reads += 1
            if self.reads == 1:
                names.read_at = float("-inf")
            return {}

    link: Any = Link()
    names = queue_names.QueueNames(Threaded().state, link)
    for _ in range(3):
        names.refresh()
    assert link.reads == 2


def rests(threaded: Threaded) -> bool:
    """Whether the worker has found nothing to do and hears of new jobs: it looks once more, and sleeps."""
    watch = threaded.worker._fetcher._watch
    return watch is not None and watch.live


def test_an_idle_worker_whose_connection_is_lost_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.worker.link.FIRST_RETRY", 0.01)
    with working(poll=NEVER) as threaded:
        eventually(lambda: rests(threaded), "the worker is idle")
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s"
        assert run(end, [f"leasequeue claim {threaded.state.node}"[:63] + "%"]) == [(True,)]
        enqueue({})
        eventually(lambda: results() == {"0": 1}, "the job is done")


def test_a_missing_queue_that_may_not_be_made_is_waited_for(settings: Any) -> None:
    settings.LEASEQUEUE = {"AUTO_CREATE": False}
    with working(poll=NEVER, queues=("declared-later",)) as threaded:
        eventually(lambda: rests(threaded), "the worker is idle")
        eventually(lambda: threaded.worker.healthy, "nothing is wrong")
        engine.run(engine.create("declared-later", preset="django"))
        enqueue({}, queue="declared-later")
        eventually(lambda: results() == {"0": 1}, "the job is done")
        eventually(lambda: rests(threaded), "it is idle again")
        assert threaded.stop() == 0, "at once"


def test_an_idle_worker_looks_by_itself_for_what_nobody_announces() -> None:
    with working(poll=0.05) as threaded:
        eventually(lambda: rests(threaded), "the worker is idle")
        engine.run(engine.enqueue("work", [engine.NewJob(key="later", delay_ms=20)]))
        eventually(lambda: results() == {"later": 1}, "a delayed job is done")


def test_after_a_pause_few_are_claimed_ahead() -> None:
    with working(poll=NEVER, concurrency=2) as threaded:
        enqueue(*({} for _ in range(2_000)))
        eventually(lambda: len(results()) == 2_000, "the short ones are done")
        eventually(lambda: rests(threaded) and threaded.worker._fetcher._ahead == 1, "the worker has been idle a while")
        before = threaded.state.figures.claimed
        enqueue(*({"do": "wait"} for _ in range(300)))
        eventually(lambda: threaded.state.figures.claimed > before, "long ones are claimed")
        assert threaded.state.figures.claimed - before <= 2 * (2 + 5)


def test_a_burst_goes_on_with_jobs_that_jobs_enqueue() -> None:
    class Breeding(ScriptHandler):
        def run(self, job: engine.LeasedJob, control: JobControl) -> str | None:
            left = (job.data or {}).get("left", 0)
            if left:
                engine.run(engine.enqueue("work", [engine.NewJob({"left": left - 1}, key=f"{left - 1}")]))
            return None

    engine.run(engine.enqueue("work", [engine.NewJob({"left": 10}, key="10")]))
    assert burst(Breeding()).code is ExitCode.OK
    assert len(results()) == 11


def test_max_jobs_are_run_and_no_more() -> None:
    enqueue(*({} for _ in range(100)))
    with Threaded(max_jobs=30) as threaded:
        assert threaded.join() is ExitCode.OK
    assert (len(results()), LiveJob.objects.filter(state=0).count()) == (30, 70)


def test_the_worker_s_row_says_what_it_does_and_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.worker.keeper.PRESENCE", 0.05)
    enqueue({"do": "wait"}, {}, {"do": "raise", "give_up": True})
    with working(node="here", concurrency=3) as threaded:
        row = eventually(lambda: Worker.objects.filter(completed=1, failed=1).first(), "it has the figures of the two")
        assert (row.node, row.queues, row.concurrency, row.state) == ("here", ["work"], 3, "running")
        assert row.started_at <= row.seen_at
        assert ([job["queue"] for job in row.running], row.info["held"]) == (["work"], 1)
        rows(Worker).update(stop_requested_at="2020-01-01T00:00:00Z")
        eventually(lambda: threaded.state.stop_asked, "the worker sees that it is to stop")
        for control, _ in threaded.state.running():
            control.abort("stopping")
        assert threaded.join() is ExitCode.OK
    assert not Worker.objects.exists()


def test_results_wait_for_the_database(test_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The acknowledger cannot reach the database for a while: nothing is lost, nothing runs again."""
    monkeypatch.setattr("django_leasequeue.worker.link.FIRST_RETRY", 0.01)
    enqueue(*({} for _ in range(50)))
    with working() as threaded:
        link = threaded.worker._acknowledger._links[0]
        attempt, refusals = link.attempt, iter(range(5))

        def refuse(operation: Any) -> Any:
            if next(refusals, None) is not None:
                raise psycopg.OperationalError("connection refused")
            return attempt(operation)

        monkeypatch.setattr(link, "attempt", refuse)
        engine.run(engine.enqueue("work", [engine.NewJob(key=f"more-{number}") for number in range(50)]))
        eventually(lambda: len(results()) == 100, "all are done")
        assert threaded.state.figures.claimed == 100


def test_a_claim_whose_answer_was_lost_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is a minute: the jobs would wait that long."""
    enqueue(*({} for _ in range(20)))
    threaded = Threaded(poll=NEVER, concurrency=5)

    def lose() -> None:
        link = threaded.worker._fetcher.link
        link.losses += 1
        link.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    lost = at_first_claim(monkeypatch, threaded, lose)
    with threaded:
        eventually(lambda: len(results()) == 20, "all are done")
    assert len(lost) >= 5
    assert set(JobResult.objects.values_list("deliveries", flat=True)) == {1}, "what never started does not count"


def test_a_part_that_breaks_stops_the_worker_and_gives_its_jobs_back(monkeypatch: Any, caplog: Any) -> None:
    with working(poll=0.01) as threaded:
        monkeypatch.setattr(threaded.worker._fetcher, "_want", lambda: 1 / 0)
        assert threaded.join() is ExitCode.BROKEN
        assert not threaded.worker.healthy
    assert "Part of the worker broke" in caplog.text


@pytest.mark.slow
def test_a_thread_that_takes_its_time_to_end_is_no_job_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine: whoever stops the worker is told that all that had started has ended."""
    usual = threads.ThreadPool._work

    def slowly(self: threads.ThreadPool, slot: threads.Slot) -> None:
        usual(self, slot)
        time.sleep(2.5)

    monkeypatch.setattr(threads.ThreadPool, "_work", slowly)
    enqueue({})
    done = burst(concurrency=1)
    assert (done.code, done.worker.clean) == (ExitCode.OK, True)


def test_only_the_project_s_own_jobs_are_taken() -> None:
    engine.run(engine.create("work", project="tenant", preset="django"))
    engine.run(engine.enqueue("work", [engine.NewJob(key="theirs")], project="tenant"))
    enqueue({})
    burst()
    assert results() == {"0": 1}
    burst(project="tenant")
    assert results() == {"0": 1, "theirs": 1}
