"""Workers in a thread of the test's process, and looking at what they did."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import transaction
from django.db.models import F

from django_leasequeue import engine
from django_leasequeue.engine.rows import LeasedJob
from django_leasequeue.models import Claim, JobResult, LiveJob, StoredJob
from django_leasequeue.worker import ExitCode, Handler, Worker, load_options
from tests.support.rows import rows
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually
from tests.worker.handlers import ScriptHandler, lines

#: A backstop so far away that a test would fail before it comes.
NEVER = 3_600


class Threaded:
    """A worker in a thread: for the length of a block, whose end it does not wait for its jobs at."""

    def __init__(self, handler: Handler | None = None, **options: Any) -> None:
        self.worker = Worker(load_options(**{"reaper": False, **options}), handler=handler or ScriptHandler())
        self.state = self.worker.state
        self.code: ExitCode | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.code = self.worker.run()

    def __enter__(self) -> "Threaded":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.state.ask_hurry("the test")
        self.join()

    def join(self, timeout: float = 300) -> ExitCode:
        self._thread.join(timeout)
        assert self.code is not None, "the worker did not stop"
        return self.code

    def stop(self) -> ExitCode:
        self.state.ask_stop("the test")
        return self.join()


#: A worker for the length of a block.
working = Threaded


def burst(handler: Handler | None = None, **options: Any) -> Threaded:
    """Run a worker until no job is ready."""
    with Threaded(handler, burst=True, **options) as threaded:
        threaded.join()
    return threaded


def at_first_claim(monkeypatch: pytest.MonkeyPatch, threaded: Threaded, act: Callable[[], Any]) -> list[LeasedJob]:
    """Act between a worker's first claim and its answer; return the list that the claim's jobs are in by then."""
    link = threaded.worker._fetcher.link
    attempt, claimed = link.attempt, []

    def attempt_and_act(operation: Any) -> Any:
        answer = attempt(operation)
        if isinstance(answer, list) and answer and not claimed:
            claimed.extend(answer)
            act()
        return answer

    monkeypatch.setattr(link, "attempt", attempt_and_act)
    return claimed


def enqueue_at(server: TemporaryServer, key: str, notes: Path, queue: str = "work") -> None:
    """Enqueue a job that notes what it does, on a server of the test's own."""
    with psycopg.connect(server.url(), autocommit=True) as own:
        job = engine.NewJob(data={"file": str(notes)}, key=key)
        engine.ConnectionExecutor(own).run(engine.enqueue(queue, [job]))


def noted(notes: Path, key: str) -> None:
    eventually(lambda: (key, "end") in {line[:2] for line in lines(notes)}, f"{key} is done")


def enqueue(*jobs: dict[str, Any], queue: str = "work", **options: Any) -> list[int]:
    """Enqueue jobs with these payloads, their place in the list as key; return their seqs."""
    new = [engine.NewJob(data=data, key=f"{number}", **options) for number, data in enumerate(jobs)]
    return [done.seq for done in engine.run(engine.enqueue(queue, new))]


def sleeping(notes: Path, count: int, seconds: float) -> None:
    """Enqueue jobs that sleep, and note when they start and end."""
    enqueue(*({"do": "sleep", "seconds": seconds, "file": str(notes)} for _ in range(count)))


def expire(queue: str, count: int) -> None:
    """Claim jobs, and let their leases expire: they are suspects."""
    engine.run(engine.claim(queue, "dies", count, lease_ms=100))
    time.sleep(0.15)
    engine.run(engine.sweep([StoredJob.objects.filter(queue__name=queue).values_list("queue_id", flat=True)[0]]))


def take_away(seq: int, queue: str = "work") -> engine.LeasedJob:
    """Let a lease expire and lease the job to somebody else."""
    # In one transaction: in between, the worker under test could take it again.
    with transaction.atomic():
        job = LiveJob.objects.get(seq=seq)
        assert job.node is not None and job.claim is not None  # noqa: PT018
        # A part of the claim of its own.
        engine.run(engine.extend([seq], job.node, tokens=[job.claim]))
        past = F("deadline") - timedelta(hours=1)
        assert rows(Claim).filter(token=job.claim, seqs=[seq]).update(deadline=past) == 1
        engine.run(engine.sweep([job.queue_id]))
        (taken,) = engine.run(engine.claim(queue, "another"))
    return taken


def a_job(seq: int = 1, token: int = 1) -> LeasedJob:
    """Return a leased job of which nothing else is known."""
    values: dict[str, Any] = dict.fromkeys(LeasedJob._fields)
    return LeasedJob(**{**values, "seq": seq, "token": token, "queue": "work"})


def ready(queue: str = "work") -> int:
    return LiveJob.objects.filter(queue__name=queue, state=0).count()


def results() -> dict[str, int]:
    """Key -> state of the results."""
    keys = dict(StoredJob.objects.values_list("pk", "key"))
    return {str(keys[seq]): state for seq, state in JobResult.objects.values_list("seq", "state")}
