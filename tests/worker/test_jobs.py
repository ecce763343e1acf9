"""What becomes of jobs: they run in threads and in the event loop, end, fail, are tried again, and are told about."""

import asyncio
import contextvars
import threading
import time
from collections import Counter
from typing import Any

import pytest
from django.db import connection

from django_leasequeue import engine
from django_leasequeue.models import JobEvent, JobResult, LiveJob
from django_leasequeue.worker import ExitCode, JobControl, JobTimeout
from tests.engine.helpers import errors_of, run
from tests.support.waiting import aeventually, eventually
from tests.worker.handlers import ScriptHandler
from tests.worker.support import burst, enqueue, ready, results, working

pytestmark = pytest.mark.usefixtures("work")

COMPLETED, FAILED = 1, 2


@pytest.mark.parametrize("of_six", [0, 3, 6], ids=["threads", "both", "loop"])
def test_jobs_run_and_their_results_are_kept(of_six: int) -> None:
    seqs = enqueue(*({"do": "return", "json": f'{{"n":{n}}}', "async": n % 6 < of_six} for n in range(300)))
    done = burst()
    assert done.code is ExitCode.OK
    assert not LiveJob.objects.exists()
    assert dict(JobResult.objects.values_list("seq", "result")) == {seq: {"n": n} for n, seq in enumerate(seqs)}
    assert done.state.figures.completed == 300
    kinds = Counter(JobEvent.objects.values_list("kind", flat=True))
    assert kinds == {1: 300, 2: 300, 5: 300}
    ran = JobEvent.objects.filter(kind=5).values_list("ran", flat=True)
    assert all(ms is not None and 0 <= ms < 600_000 for ms in ran), "how long handlers ran is noted"


@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "loop"])
def test_a_job_that_fails_is_tried_again_until_it_is_dead(in_loop: bool) -> None:
    handler = ScriptHandler()
    (seq,) = enqueue({"do": "raise", "message": "no luck", "async": in_loop})
    with working(handler):
        job = eventually(lambda: LiveJob.objects.filter(seq=seq, state=3).first(), "the job is dead")
    assert job.deliveries == 3
    assert [error["message"] for error in errors_of(job.seq)] == ["no luck"] * 3
    assert job.error_type == job.fingerprint == "builtins.ValueError"
    assert [ending for ending, _ in handler.told] == ["failing", "failing", "dead"]


def test_one_thread_runs_jobs_in_the_order_of_the_claim() -> None:
    seqs = enqueue(*({} for _ in range(200)))
    handler = ScriptHandler()
    burst(handler, concurrency=1)
    assert [seq for _, seq in handler.told] == seqs


class Gauge(ScriptHandler):
    """Counts how many jobs run at once. None ends before as many as expected have run beside each other."""

    def __init__(self, expected: int) -> None:
        super().__init__()
        self.expected = expected
        self.now = self.most = 0
        self.lock = threading.Lock()

    def enter(self, step: int) -> None:
        with self.lock:
            self.now += step
            self.most = max(self.most, self.now)

    def full(self) -> bool:
        return self.most >= self.expected

    def run(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        self.enter(1)
        eventually(self.full, "so many run")
        time.sleep(0.01)
        self.enter(-1)
        return None

    async def arun(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        self.enter(1)
        await aeventually(self.full, "so many run")
        await asyncio.sleep(0.01)
        self.enter(-1)
        return None


@pytest.mark.parametrize(("in_loop", "bounds", "most"), [
    (False, {"concurrency": 6}, 6), (True, {"concurrency": 6}, 6),
    (True, {"concurrency": 1, "async_concurrency": 20}, 20),
])  # fmt: skip
def test_so_many_jobs_at_once_and_no_more(in_loop: bool, bounds: dict[str, int], most: int) -> None:
    enqueue(*({"async": in_loop} for _ in range(60)))
    handler = Gauge(most)
    burst(handler, **bounds)
    assert handler.most == most


def test_a_result_that_the_database_refuses_or_is_too_large_costs_nobody_else_his(settings: Any) -> None:
    settings.LEASEQUEUE = {"MAX_RESULT_BYTES": 100}
    bad = {17: '"no end', 33: "not json", 40: f'"{"x" * 200}"'}
    seqs = enqueue(*({"do": "return", "json": bad.get(number, "1")} for number in range(50)))
    with working():
        eventually(lambda: LiveJob.objects.filter(state=3).count() == 3, "the three are dead")
        eventually(lambda: len(results()) == 47, "the others are done")
    dead = LiveJob.objects.filter(state=3).order_by("seq")
    assert ([job.seq for job in dead], "100 bytes" in dead[2].error) == ([seqs[17], seqs[33], seqs[40]], True)
    assert all(len(errors_of(job.seq)) == 3 for job in dead)


class Rude(ScriptHandler):
    def __init__(self, kind: type[BaseException]) -> None:
        self._kind = kind

    def failed(self, job: engine.LeasedJob, error: BaseException) -> Any:
        raise self._kind("in failed")

    def settled(self, *args: Any, **kwargs: Any) -> None:
        raise self._kind("in settled")


@pytest.mark.parametrize("kind", [LookupError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_handler_that_raises_everywhere_does_not_stop_the_worker(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    enqueue({"do": "raise"}, {})
    with working(Rude(kind)) as threaded:
        job = eventually(lambda: LiveJob.objects.filter(state=3).first(), "the first is dead")
        eventually(lambda: results() == {"1": COMPLETED}, "the second is done")
        assert threaded.worker.healthy
    assert job.error_type == f"builtins.{kind.__name__}"
    assert "The method settled() of the handler raised" in caplog.text


class Exits(ScriptHandler):
    def run(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        raise SystemExit(1)

    async def arun(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "loop"])
def test_a_job_that_exits_only_fails(in_loop: bool) -> None:
    enqueue({"async": in_loop})
    with working(Exits()):
        job = eventually(lambda: LiveJob.objects.filter(state=3).first(), "the job is dead")
    assert job.error_type == ("builtins.KeyboardInterrupt" if in_loop else "builtins.SystemExit")


class Disturbs(ScriptHandler):
    """Runs a job that disturbs the event loop while another one waits."""

    def __init__(self) -> None:
        super().__init__()
        self._disturbed = asyncio.Event()

    async def arun(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        match (job.data or {})["do"]:
            case "stop":
                asyncio.get_running_loop().stop()
            case "cancel":
                for task in asyncio.all_tasks():
                    task.cancel()
            case _:
                await self._disturbed.wait()
        self._disturbed.set()
        await asyncio.sleep(0)
        return None


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_a_job_that_stops_the_loop_or_cancels_all_tasks_costs_no_other_an_attempt(how: str) -> None:
    enqueue({"async": True, "do": "wait"}, {"async": True, "do": how}, max_deliveries=1)
    with working(Disturbs()) as threaded:
        eventually(lambda: results() == {"0": COMPLETED, "1": COMPLETED}, "both are done")
        assert threaded.stop() is ExitCode.OK


class Breaks(ScriptHandler):
    """Breaks the thread that settles when the first job has completed."""

    broke = False

    def hears(self, ending: str) -> bool:
        if not self.broke:
            self.broke = True
            raise LookupError(ending)
        return True


def test_a_worker_whose_settling_thread_breaks_gives_its_jobs_back() -> None:
    enqueue({"do": "wait"}, {})
    with working(Breaks(), concurrency=2) as threaded:
        assert threaded.join() is ExitCode.BROKEN
    assert results() == {"1": COMPLETED}
    assert ready() == 1


@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "loop"])
def test_a_soft_timeout_breaks_the_job_off_or_is_told_to_one_that_waits(in_loop: bool) -> None:
    common = {"soft": 0.05, "async": in_loop, "give_up": True}
    enqueue({"do": "sleep", "seconds": 600, **common}, {"do": "wait", **common})
    with working():
        eventually(lambda: results() == {"0": FAILED, "1": FAILED}, "the jobs failed")
    result = JobResult.objects.earliest("seq")
    assert result.error_type == "django_leasequeue.worker.control.JobTimeout"
    assert result.error == "The job ran longer than its timeout of 0.05 s."


class Brief(ScriptHandler):
    """Jobs that end about when their time is over; every other has no timeout and must never see one."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[BaseException] = []

    def timeout(self, job: engine.LeasedJob, default: float | None = None) -> tuple[float | None, float | None]:
        return (0.001, None) if job.seq % 2 else (None, None)

    def run(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        try:
            end = time.perf_counter() + (0.001 if job.seq % 2 else 0.0005)
            while time.perf_counter() < end:
                pass
        except JobTimeout as error:
            if not job.seq % 2:
                self.wrong.append(error)
            raise
        return None


# One that is raised inside a callback of a weak reference is lost there: Python prints it, and the job goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_a_timeout_never_hits_another_job() -> None:
    enqueue(*({"give_up": True} for _ in range(1_000)))
    handler = Brief()
    done = burst(handler, concurrency=3)
    assert handler.wrong == []
    assert done.code is ExitCode.OK
    figures = done.state.figures
    assert figures.completed + figures.failed == 1_000
    assert figures.completed >= 500


secret: contextvars.ContextVar[int] = contextvars.ContextVar("secret", default=0)


class Leaky(ScriptHandler):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.open: list[bool] = []

    def run(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        self.seen.append(secret.get())
        secret.set(job.seq)
        self.open.append(connection.connection is not None)
        run("SELECT 1")
        return None

    async def arun(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        self.seen.append(secret.get())
        secret.set(job.seq)
        self.open.append(await LiveJob.objects.filter(seq=job.seq).aexists())
        return None


@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "loop"])
def test_jobs_share_neither_context_nor_connection(in_loop: bool) -> None:
    handler = Leaky()
    before = connections_of_jobs()
    enqueue(*({"async": in_loop} for _ in range(20)))
    with working(handler, concurrency=1) as threaded:
        eventually(lambda: threaded.state.figures.completed == 20, "all are done")
        # CONN_MAX_AGE is 0: Django's connections are closed after each job, only ours stay.
        eventually(lambda: connections_of_jobs() <= before, "the jobs' connections are closed")
    assert (handler.seen, handler.open) == ([0] * 20, [in_loop] * 20)


def connections_of_jobs() -> set[int]:
    """Return the process ids of connections whose last query is one of ``Leaky``; another test may have left some."""
    found = run(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND query ~ '^SELECT (1|.* FROM .leasequeue_job.)'"
    )
    return {pid for (pid,) in found}


def test_progress_is_stored_while_the_job_runs() -> None:
    engine.run(engine.configure("work", preset="django", lease_ms=8_000))
    (seq,) = enqueue({"do": "progress", "value": {"done": 7}, "seconds": 60})
    with working():
        eventually(lambda: LiveJob.objects.get(seq=seq).progress == {"done": 7}, "the progress is stored")
