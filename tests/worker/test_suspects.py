"""Jobs that take their process with them: nobody else pays for it, and what never started is no delivery."""

import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import LeasedJob
from django_leasequeue.engine.outage import Outage
from django_leasequeue.enums import EventKind, JobFlag
from django_leasequeue.models import JobEvent, JobResult, LiveJob, Ready, StoredJob
from django_leasequeue.reaper import status
from django_leasequeue.worker import JobControl, load_options
from django_leasequeue.worker.journal import Journal, OrphanRecovery
from django_leasequeue.worker.link import DatabaseLink
from django_leasequeue.worker.starts import ALONE
from tests.support.rows import rows
from tests.support.waiting import eventually
from tests.worker.handlers import ScriptHandler, lines
from tests.worker.processes import Start
from tests.worker.support import Threaded, a_job, enqueue, expire, results, working

pytestmark = pytest.mark.usefixtures("own_directory")

DEAD = 3


@pytest.fixture
def recovery() -> Iterator[OrphanRecovery]:
    options = load_options()
    link = DatabaseLink(options.database, "test", "recovery", Outage(logging.getLogger("test"), "away", "back"))
    recovery = OrphanRecovery(options, link)
    yield recovery
    recovery.close()
    link.close()


@pytest.fixture
def poisoned(work: str) -> str:
    """A queue like those of Django tasks."""
    engine.run(engine.configure("work", preset="django", max_deliveries=5))
    return work


def journals(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("leasequeue-*/*.journal"))


def deliveries_of_innocents(notes: Path, poison: int) -> dict[str, tuple[int, int]]:
    """Key -> (deliveries that count, starts that it noted)."""
    starts = Counter(key for key, word, _ in lines(notes) if word == "start")
    keys = {seq: str(key) for seq, key in StoredJob.objects.values_list("pk", "key")}
    counted = JobResult.objects.exclude(seq=poison).values_list("seq", "deliveries")
    return {keys[seq]: (deliveries, starts[keys[seq]]) for seq, deliveries in counted}


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.parametrize(("processes", "how"), [
    (1, "exit"), (2, "kill"),
    pytest.param(1, "kill", marks=pytest.mark.release), pytest.param(2, "exit", marks=pytest.mark.release),
])  # fmt: skip
def test_a_killer_takes_nobody_with_it(
    start: Start, tmp_path: Path, notes: Path, poisoned: str, processes: int, how: str
) -> None:
    innocent = {"do": "sleep", "seconds": 0.01, "file": str(notes)}
    jobs: list[dict[str, Any]] = [innocent] * 200
    jobs[90] = {"do": how, "file": str(notes)}
    seqs = enqueue(*jobs)
    poison = seqs[90]
    arguments = ("--concurrency", "4", "--processes", str(processes))
    worker = start(*arguments)

    def over() -> bool:
        nonlocal worker
        if not worker.running:  # what an operator's init system does
            worker = start(*arguments)
        return LiveJob.objects.filter(state=DEAD).exists() and JobResult.objects.count() >= 199

    eventually(over, "all have ended", 480)  # after five starts of a process
    eventually(lambda: len(journals(tmp_path)) <= processes, "the dead ones are forgotten")
    worker.send(signal.SIGTERM)
    worker.wait()
    assert list(LiveJob.objects.values_list("seq", "state", "deliveries")) == [(poison, DEAD, 5)]
    assert set(results().values()) == {1}
    assert len(results()) == 199
    assert sum(key == "90" and word == "start" for key, word, _ in lines(notes)) == 5
    extra = 0
    for key, (counted, started) in deliveries_of_innocents(notes, poison).items():
        # What had ended when the process died, and of which the database did not know, runs again.
        assert started <= counted <= 2, key
        extra += counted - started
    # A delivery that never started does not count; one that died before its first line may look like that.
    assert extra <= 4
    if journals(tmp_path):  # of one that died last, which was to be looked at once more: the next worker does
        worker = start(*arguments)
        eventually(lambda: len(journals(tmp_path)) == processes, "its journal is gone, each process has its own")
        worker.send(signal.SIGTERM)
        worker.wait()
    assert journals(tmp_path) == []


class Recorder(ScriptHandler):
    def __init__(self) -> None:
        super().__init__()
        self.running: set[str] = set()
        self.beside: dict[str, set[str]] = {}

    @contextmanager
    def noted(self, job: LeasedJob) -> Iterator[None]:
        key = str(job.key)
        self.running.add(key)
        self.beside[key] = self.running - {key}
        for other in list(self.beside[key]):
            self.beside[other].add(key)
        try:
            yield
        finally:
            self.running.discard(key)

    def run(self, job: LeasedJob, control: JobControl) -> str | None:
        with self.noted(job):
            return super().run(job, control)

    async def arun(self, job: LeasedJob, control: JobControl) -> str | None:
        with self.noted(job):
            return await super().arun(job, control)


def make_suspects(count: int, *jobs: dict[str, Any]) -> list[int]:
    """Enqueue jobs; the leases of the first ``count`` expire."""
    seqs = enqueue(*jobs)
    expire("work", count)
    return seqs


@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "loop"])
@pytest.mark.parametrize("requeue", ["original", "back"])
def test_without_a_process_of_its_own_a_suspect_runs_alone(work: str, in_loop: bool, requeue: str) -> None:
    engine.run(engine.configure("work", preset="django", requeue=requeue))
    job = {"do": "sleep", "seconds": 0.02}
    make_suspects(3, *({**job, "async": in_loop if n < 3 else n % 2 == 0} for n in range(60)))
    handler = Recorder()
    with working(handler, concurrency=4):
        eventually(lambda: len(results()) == 60, "all are done")
    assert [handler.beside[str(n)] for n in range(3)] == [set()] * 3
    assert any(handler.beside.values()), "the others ran side by side"
    assert JobEvent.objects.filter(kind=EventKind.RELEASED).count() == 0, "what waited was not given back"


def test_it_runs_alone_for_a_bounded_time_and_that_is_said(
    work: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    passed = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr("django_leasequeue.worker.starts.time", clock)
    monkeypatch.setattr("django_leasequeue.worker.keeper.PRESENCE", 0.1)
    seqs = make_suspects(1, {"do": "wait"}, *({} for _ in range(20)))
    with working(concurrency=2) as threaded:
        threaded.state.keeper.wake()

        def alone() -> list[str]:
            threaded.state.keeper.wake()
            return [text for text in status.read_status("default").problems if "has run a suspect for" in text]

        (text,) = eventually(alone, "it is among what deserves attention")
        assert f"(job {seqs[0]} of work) and starts nothing else: it has no process of its own for it." in text
        _, figures = threaded.worker.report()
        assert (figures["suspects"], figures["held"]) == (1, 1)
        assert figures["alone_seconds"] > 0
        passed[0] = ALONE
        eventually(lambda: len(results()) == 20, "the others start beside it after that time")
        assert threaded.worker.report()[1]["alone_seconds"] == 0
        eventually(lambda: not alone())
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("A suspect runs alone" in line for line in said)
    assert any("A suspect still runs; other jobs start beside it" in line for line in said)


def test_a_suspect_that_finds_no_quiet_is_left_to_others(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.worker.starts.QUIET", 0.3)
    monkeypatch.setattr("django_leasequeue.worker.starts.FIRST_DELAY", 600_000)
    enqueue({"do": "wait"})
    with working(concurrency=2) as threaded:
        eventually(lambda: len(threaded.state.running()) == 1, "a long job runs")
        engine.run(engine.pause("work", paused=True))
        (answer,) = engine.run(engine.enqueue("work", [engine.NewJob({}, key="suspect")]))
        rows(Ready).filter(seq=answer.seq).update(flags=JobFlag.SUSPECT)
        engine.run(engine.pause("work", paused=False))
        job = eventually(lambda: LiveJob.objects.filter(seq=answer.seq, state=1).first(), "it is put off")
        assert job.deliveries == 0
        engine.run(engine.enqueue("work", [engine.NewJob({}, key=f"{n}") for n in range(1, 11)]))
        eventually(lambda: len(results()) == 10, "others run beside the long one")


JOURNAL = """
import os, signal, sys, django
django.setup()
from django_leasequeue import engine
from django_leasequeue.worker import load_options
from django_leasequeue.worker.journal import Journal
jobs = engine.run(engine.claim("work", "gone", 6))
journal = Journal("gone", load_options(), 2, 8)
first, second = journal.slot(), journal.slot()
journal.started(first, jobs[0])
journal.ended(jobs[0])
journal.started(first, jobs[1])
journal.started(second, jobs[2])
os.kill(os.getpid(), signal.SIGKILL)
"""


def dies(env: dict[str, str], code: str = JOURNAL, **options: str) -> None:
    """Let a worker die that has six jobs: two run, one has ended."""
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    code = code.replace("load_options()", f"load_options({given})")
    ended = subprocess.run([sys.executable, "-c", code], env=env, check=False)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_what_a_killed_worker_held_is_free_at_once(
    poisoned: str, subprocess_env: dict[str, str], tmp_path: Path, recovery: OrphanRecovery
) -> None:
    seqs = enqueue(*({} for _ in range(6)))
    dies(subprocess_env)
    assert len(journals(tmp_path)) == 1
    assert recovery.recover()
    assert not recovery.recover(), "once"
    places = {job.seq: (job.state, job.deliveries) for job in LiveJob.objects.all()}
    assert [places[seq] for seq in seqs[3:]] == [(0, 0)] * 3, "ready, and the delivery does not count"
    assert [places[seq] for seq in seqs[:3]] == [(2, 1)] * 3
    time.sleep(0.15)
    engine.run(engine.sweep([StoredJob.objects.values_list("queue_id", flat=True)[0]]))
    claimed = engine.run(engine.claim("work", "next", 6))
    flags = {job.seq: bool(job.flags & JobFlag.SUSPECT) for job in claimed}
    assert [flags[seq] for seq in seqs] == [True] * 3 + [False] * 3


@pytest.mark.slow
@pytest.mark.parametrize("noted", [True, False])
def test_what_another_process_of_that_name_holds_is_not_touched(
    poisoned: str, subprocess_env: dict[str, str], tmp_path: Path, noted: bool, recovery: OrphanRecovery
) -> None:
    """An operator named the worker, and the next one has the same name: only claims that the dead one noted are its."""
    enqueue(*({} for _ in range(6)))
    if noted:
        code = JOURNAL.replace("first, second", "journal.claimed(jobs[0].token)\nfirst, second")
    else:
        code = re.sub(r"journal\.(started|ended)", r"0 and journal.\1", JOURNAL)
    dies(subprocess_env, code, node="gone")
    engine.run(engine.enqueue("work", [engine.NewJob({}, key=f"more-{n}") for n in range(3)]))
    (*_, mine) = engine.run(engine.claim("work", "gone", 3))
    assert recovery.recover()
    assert set(LiveJob.objects.filter(claim=mine.token).values_list("state", flat=True)) == {2}
    assert LiveJob.objects.filter(state=2).count() == (6 if noted else 9)


@pytest.mark.slow
def test_a_journal_of_the_living_and_of_other_places_is_left_alone(
    work: str, tmp_path: Path, subprocess_env: dict[str, str], recovery: OrphanRecovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Journal("alive", load_options(), 2, 8)
    enqueue(*({} for _ in range(6)))
    dies(subprocess_env, project="another")
    (tmp_path / f"leasequeue-{os.geteuid()}" / "rubbish.journal").write_bytes(b"what is this")
    reads: list[int] = []
    pread = os.pread

    def counted(file: int, size: int, at: int) -> bytes:
        reads.append(size)
        return pread(file, size, at)

    monkeypatch.setattr(os, "pread", counted)
    assert not recovery.recover()
    assert reads == [1_024, 1_024]  # the headers: what is noted there, every worker would read every second
    assert len(journals(tmp_path)) >= 2
    own.close()


def test_a_directory_that_others_can_write_to_is_not_trusted(work: str, tmp_path: Path) -> None:
    (tmp_path / f"leasequeue-{os.geteuid()}").mkdir(mode=0o777)
    (tmp_path / f"leasequeue-{os.geteuid()}").chmod(0o777)
    journal = Journal("a", load_options(), 2, 8)
    slot = journal.slot()
    journal.started(slot, a_job())
    journal.close()
    assert journals(tmp_path) == []


def test_a_worker_that_ends_well_leaves_no_journal(work: str, tmp_path: Path) -> None:
    enqueue(*({} for _ in range(20)))
    threaded = Threaded(burst=True)
    assert len(journals(tmp_path)) == 1
    with threaded:
        threaded.join()
    assert journals(tmp_path) == []
