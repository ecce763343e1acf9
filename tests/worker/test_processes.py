"""Acceptance: worker processes as an operator runs them, with signals and deaths; and as a developer: ``--reload``."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from django_leasequeue import engine
from django_leasequeue.admin import reading
from django_leasequeue.engine import clock
from django_leasequeue.engine.limits import WORKER_LEASE
from django_leasequeue.models import JobResult, LiveJob, Worker
from django_leasequeue.worker import ExitCode, process
from tests.support.commands import said
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.worker.handlers import lines, times
from tests.worker.processes import Start, WorkerProcess, alive, ask, children_of
from tests.worker.support import enqueue, ready, results, sleeping

pytestmark = [pytest.mark.usefixtures("work"), pytest.mark.chaos, pytest.mark.slow]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(start: Start, notes: Path, number: signal.Signals) -> None:
    sleeping(notes, 40, 0.5)
    worker = start("--concurrency", "4")
    eventually(lambda: times(notes, "start") >= 4, "four run")
    worker.send(number)
    assert worker.wait() == 0
    began, ended = times(notes, "start"), times(notes, "end")
    assert began == ended, "what had started has ended"
    assert len(results()) == ended < 40
    assert ready() == 40 - ended
    assert set(LiveJob.objects.values_list("deliveries", flat=True)) == {0}


def test_a_second_signal_does_not_wait(start: Start, notes: Path) -> None:
    enqueue(*({"do": "hang", "file": str(notes)} for _ in range(3)))
    worker = start("--concurrency", "2", "--drain-timeout", "3600")
    eventually(lambda: times(notes, "start") == 2, "two hang")
    worker.send(signal.SIGTERM)
    worker.says("Worker stops")
    time.sleep(0.3)
    assert worker.running
    worker.send(signal.SIGTERM)
    assert worker.wait() == 3
    assert ready() == 3
    assert Counter(LiveJob.objects.values_list("deliveries", flat=True)) == {1: 2, 0: 1}


@pytest.mark.sample
def test_processes_share_a_burst_and_a_signal_to_the_whole_group_counts_once(start: Start, notes: Path) -> None:
    sleeping(notes, 60, 0.05)
    assert start("--processes", "2", "--burst").wait() == 0
    assert len(results()) == 60
    notes.unlink()
    enqueue(*({"do": "sleep", "seconds": 0.7, "file": str(notes)} for _ in range(4)), queue="more")
    supervisor = start("--processes", "2", "--concurrency", "2")
    eventually(lambda: times(notes, "start") == 4, "four run")
    pids = {pid for *_, pid in lines(notes)}
    assert pids <= set(children_of(supervisor.pid))
    os.killpg(supervisor.pid, signal.SIGTERM)
    assert supervisor.wait() == 0
    assert times(notes, "end") == 4
    assert not any(alive(pid) for pid in pids)
    assert not Worker.objects.exists()


# Killed, and by a code that means something to its parent; each is a supervisor and three workers.
@pytest.mark.parametrize("code", [
    None, ExitCode.RECYCLE,
    *(pytest.param(code, marks=pytest.mark.release) for code in (ExitCode.OK, ExitCode.USAGE, ExitCode.GIVEN_BACK)),
])  # fmt: skip
def test_a_child_that_dies_is_started_again_whatever_its_code(start: Start, notes: Path, code: ExitCode | None) -> None:
    supervisor = start("--processes", "2")
    supervisor.says("Worker started", 2)
    before = set(children_of(supervisor.pid))
    if code is None:
        os.kill(min(before), signal.SIGKILL)
    else:
        enqueue({"do": "exit", "code": code, "times": 1, "file": str(notes)})
    supervisor.says("A worker process ended and restarts", 1)
    supervisor.says("Worker started", 3)
    now = set(children_of(supervisor.pid))
    assert (len(now), len(now & before)) == (2, 1)
    supervisor.ends()


def test_workers_do_not_outlive_their_supervisor(start: Start, notes: Path) -> None:
    sleeping(notes, 2, 0.5)
    supervisor = start("--processes", "2", "--concurrency", "1")
    eventually(lambda: times(notes, "start") == 2, "both run")
    children = children_of(supervisor.pid)
    supervisor.send(signal.SIGKILL)
    eventually(lambda: not any(alive(pid) for pid in children), "they are gone")
    assert times(notes, "end") == 2, "gracefully"


def test_max_jobs_replace_a_process(start: Start, notes: Path) -> None:
    sleeping(notes, 40, 0.001)
    supervisor = start("--processes", "2", "--max-jobs", "5")
    eventually(lambda: len(results()) == 40, "all are done")
    supervisor.ends()
    runs = Counter(pid for _, word, pid in lines(notes) if word == "end")
    assert len(runs) >= 8
    assert max(runs.values()) <= 5


@pytest.mark.parametrize("arguments", [(), ("--processes", "2")], ids=["alone", "supervised"])
def test_a_job_that_does_not_end_costs_its_process(start: Start, notes: Path, arguments: tuple[str, ...]) -> None:
    (stuck,) = enqueue({"do": "hang", "soft": 0.1, "hard": 0.3, "delay": 3_600_000, "file": str(notes)})
    worker = start("--concurrency", "2", *arguments)
    eventually(lambda: times(notes, "start") == 1, "it hangs")
    enqueue(*({"do": "sleep", "seconds": 0.5, "file": str(notes)} for _ in range(2)), queue="other")
    job = eventually(lambda: LiveJob.objects.filter(seq=stuck, state=1).first(), "it is given back with a failure")
    assert "did not end at its hard timeout" in job.error
    assert job.error_type == "django_leasequeue.worker.worker.HardTimeout"
    assert job.available_at > job.first_claimed_at + timedelta(minutes=50), "the handler said when to try again"
    eventually(lambda: JobResult.objects.count() == 2, "the others are done")
    assert set(JobResult.objects.values_list("deliveries", flat=True)) == {1}
    # The next process takes what comes.
    enqueue({"file": str(notes)}, queue="later")
    eventually(lambda: JobResult.objects.count() == 3, "the next one is done")
    worker.says("Worker started", times=3 if arguments else 2)
    worker.ends()


@pytest.mark.parametrize("processes", [1, 2])
def test_health(start: Start, tmp_path: Path, processes: int) -> None:
    port, file = free_port(), tmp_path / "health"
    worker = start("--health-port", str(port), "--health-file", str(file), "--processes", str(processes))
    worker.says("Worker started", processes)
    # It is well when its parts have looked at the database once, which is after it said that.
    eventually(lambda: ask(port, "/health")[0] == 200, "it is well")
    assert json.loads(ask(port, "/health")[1])["healthy"] is True
    if processes == 2:
        eventually(lambda: all(json.loads(ask(port, "/health")[1])["workers"]), "both report")
        # A child that does nothing any more makes the whole ill.
        stopped = children_of(worker.pid)[0]
        os.kill(stopped, signal.SIGSTOP)
        eventually(lambda: ask(port, "/health")[0] == 503, "it is seen")
        os.kill(stopped, signal.SIGCONT)
        eventually(lambda: ask(port, "/health")[0] == 200, "it is well again")
    eventually(file.exists, "the file is there")
    assert json.loads(file.read_text())["node"]
    worker.ends()
    assert not file.exists()


@pytest.mark.parametrize(("arguments", "words_said"), [
    (("--concurrency", "0"), "CONCURRENCY'] must be an integer, 1 to 1,000; it is 0"),
    (("--handler", "nothing.Here"), "No module named 'nothing'"),
    (("--handler", "tests.worker.handlers.note", "--processes", "2"), "unexpected keyword argument 'project'"),
    (("--database", "nowhere"), "database must be a PostgreSQL alias of DATABASES; it is 'nowhere'"),
    (("--health-file", "/nonexistent/file", "--processes", "2"), "/nonexistent"),
    (("--health-port", "taken"), "Address already in use"),
    (("--reload", "--processes", "2"), "--reload takes one process; --processes is 2: add --processes 1."),
    (("--reload", "--burst"), "cannot be combined with --burst or --max-jobs"),
])  # fmt: skip
def test_what_cannot_start_says_why_and_exits_1(start: Start, arguments: tuple[str, ...], words_said: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        worker = start(*(port if argument == "taken" else argument for argument in arguments))
        assert worker.wait() == 1
    assert words_said in worker.text
    assert "Traceback" not in worker.text


def test_the_other_name_of_the_command(subprocess_env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "django", "leasequeue_worker", "--burst", "--no-reaper"]
    handler = ["--handler", "tests.worker.handlers.ScriptHandler"]
    subprocess.run([*command, *handler], env=subprocess_env, capture_output=True, check=True, timeout=500)


def shown() -> list[tuple[str, str, int]]:
    """What the status command says of workers: node, state, jobs running."""
    workers = json.loads(said("leasequeue_status", "--json"))["workers"]
    return [(line["node"], line["state"], line["running"]) for line in workers]


@pytest.mark.sample
def test_one_that_was_killed_is_shown_as_gone_when_the_lease_of_its_row_is_over(start: Start) -> None:
    enqueue({"do": "wait"})
    worker = start("--node", "here")
    row = eventually(lambda: Worker.objects.filter(running__0__queue="work").first(), "it shows what it runs")
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    seen = Worker.objects.get().seen_at
    with clock.hold(clock.Clock(seen)) as held:
        assert (row.state, shown()) == ("running", [("here", "running", 1)])
        held.advance(seconds=WORKER_LEASE - 0.1)
        (alive,) = reading.read_workers()
        assert (alive.state, alive.gone, len(alive.running)) == ("running", False, 1)
        held.advance(seconds=0.2)
        (gone,) = reading.read_workers()
        assert gone.gone is True
        assert shown() == [("here", "gone", 0)]
        text = said("leasequeue_status")
        assert "Worker here was not seen for 30.1 s." in text
        assert "No worker listens" not in text, "no job is ready"


HANDLER = """
from tests.worker.handlers import ScriptHandler, note

class Handler(ScriptHandler):
    def run(self, job, control):
        note(job, {word!r})
        return super().run(job, control)
"""


@pytest.fixture
def code(tmp_path: Path, subprocess_env: dict[str, str]) -> Path:
    """A module that the worker loads its handler from; its settings are in a module beside it."""
    subprocess_env["PYTHONPATH"] = f"{tmp_path}:{subprocess_env.get('PYTHONPATH', '')}"
    subprocess_env["DJANGO_SETTINGS_MODULE"] = "own_settings"
    (tmp_path / "own_settings.py").write_text("from testproject.settings import *\n")
    path = tmp_path / "reloaded.py"
    path.write_text(HANDLER.format(word="old"))
    return path


def put(key: str, path: Path, **data: object) -> None:
    engine.run(engine.enqueue("work", [engine.NewJob({"file": str(path), **data}, key=key)]))


def change(code: Path, text: str, worker: WorkerProcess, words_said: str, times: int) -> None:
    """Change the code until the worker has noticed: its watcher knows only files that it has seen before."""
    for number in range(75):
        code.write_text(text + "\n" * number)
        with suppress(AssertionError):
            return worker.says(words_said, times, seconds=4)
    raise AssertionError(f"it never said {words_said!r} {times} times:\n{worker.text}")


def test_a_change_starts_it_anew_and_a_signal_ends_it(start: Start, code: Path, notes: Path) -> None:
    worker = start("--reload", "--handler", "reloaded.Handler")
    put("first", notes)
    eventually(lambda: notes.exists() and "first old" in notes.read_text(), "the old code runs")
    before = Worker.objects.values_list("pid", flat=True)
    eventually(lambda: len(before.all()) == 1, "it says that it is there")
    (old,) = before.all()
    change(code, HANDLER.format(word="new"), worker, "Worker started", 2)
    put("second", notes)
    eventually(lambda: "second new" in notes.read_text(), "the new code runs")
    assert old not in children_of(worker.pid)
    put("long", notes, do="wait")
    eventually(lambda: "long start" in notes.read_text(), "it runs")
    worker.ends()
    assert worker.text.count("Worker stopped") == worker.text.count("Worker started") >= 2
    assert not Worker.objects.exists()
    assert JobResult.objects.filter(state=1).count() == 2
    assert LiveJob.objects.filter(state=0).count() == 1, "a running job is given back"


@pytest.mark.sample
def test_a_signal_that_finds_it_leaving_for_a_change_ends_it_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    class Child:
        def __init__(self, *_: object, **__: object) -> None: ...
        def send_signal(self, number: int) -> None:
            assert number == signal.SIGTERM

        def wait(self) -> int:
            signal.raise_signal(signal.SIGTERM)
            return process.CHANGED

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    monkeypatch.setattr(process.subprocess, "Popen", Child)
    monkeypatch.setattr(process.autoreload, "get_child_arguments", lambda: ["worker"])
    try:
        assert process._start_again_and_again() == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize(("name", "words_said"), [
    ("reloaded.py", "SyntaxError"), ("own_settings.py", "could not start"),
], ids=["what the worker loads", "what every process loads"])  # fmt: skip
def test_code_that_is_broken_is_waited_for(start: Start, code: Path, name: str, words_said: str) -> None:
    broken = code.with_name(name)
    good = broken.read_text()
    worker = start("--reload", "--handler", "reloaded.Handler")
    worker.says("Worker started")
    change(broken, "this is no Python", worker, words_said, 1)
    change(broken, good, worker, "Worker started", 2)
    worker.ends()
