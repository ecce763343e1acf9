"""Acceptance: worker processes as an operator runs them, with signals and deaths."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from django_leasequeue.admin import reading
from django_leasequeue.engine import clock
from django_leasequeue.engine.limits import WORKER_LEASE
from django_leasequeue.models import JobResult, LiveJob, Worker
from django_leasequeue.worker import ExitCode
from tests.support.commands import said
from tests.support.environment import child_environment
from tests.support.ports import free_port
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually
from tests.worker.handlers import lines
from tests.worker.processes import Start, alive, children_of, starting
from tests.worker.support import enqueue, ready, results

pytestmark = [pytest.mark.usefixtures("work"), pytest.mark.chaos]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def words(notes: Path, word: str) -> int:
    return sum(noted == word for _, noted, _ in lines(notes))


def sleeping(notes: Path, count: int, seconds: float) -> list[int]:
    return enqueue(*({"do": "sleep", "seconds": seconds, "file": str(notes)} for _ in range(count)))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(start: Start, notes: Path, number: signal.Signals) -> None:
    sleeping(notes, 40, 0.5)
    worker = start("--concurrency", "4")
    eventually(lambda: words(notes, "start") >= 4, "four run")
    worker.send(number)
    assert worker.wait() == 0
    began, ended = words(notes, "start"), words(notes, "end")
    assert began == ended, "what had started has ended"
    assert len(results()) == ended < 40
    assert ready() == 40 - ended
    assert set(LiveJob.objects.values_list("deliveries", flat=True)) == {0}


@pytest.mark.slow
def test_a_second_signal_does_not_wait(start: Start, notes: Path) -> None:
    enqueue(*({"do": "hang", "file": str(notes)} for _ in range(3)))
    worker = start("--concurrency", "2", "--drain-timeout", "3600")
    eventually(lambda: words(notes, "start") == 2, "two hang")
    worker.send(signal.SIGTERM)
    worker.says("Worker stops")
    time.sleep(0.3)
    assert worker.running
    worker.send(signal.SIGTERM)
    assert worker.wait() == 3
    assert ready() == 3
    assert Counter(LiveJob.objects.values_list("deliveries", flat=True)) == {1: 2, 0: 1}


@pytest.mark.slow
@pytest.mark.sample
def test_processes_share_a_burst_and_a_signal_to_the_whole_group_counts_once(start: Start, notes: Path) -> None:
    sleeping(notes, 60, 0.05)
    assert start("--processes", "2", "--burst").wait() == 0
    assert len(results()) == 60
    notes.unlink()
    enqueue(*({"do": "sleep", "seconds": 0.7, "file": str(notes)} for _ in range(4)), queue="more")
    supervisor = start("--processes", "2", "--concurrency", "2")
    eventually(lambda: words(notes, "start") == 4, "four run")
    pids = {pid for *_, pid in lines(notes)}
    assert pids <= set(children_of(supervisor.pid))
    os.killpg(supervisor.pid, signal.SIGTERM)
    assert supervisor.wait() == 0
    assert words(notes, "end") == 4
    assert not any(alive(pid) for pid in pids)
    assert not Worker.objects.exists()


@pytest.mark.slow
@pytest.mark.parametrize("code", [None, ExitCode.OK, ExitCode.USAGE, ExitCode.GIVEN_BACK, ExitCode.RECYCLE])
def test_a_child_that_dies_is_started_again_whatever_its_exit_code(
    start: Start, notes: Path, code: ExitCode | None
) -> None:
    supervisor = start("--processes", "2")
    supervisor.says("Worker started", 2)
    before = set(children_of(supervisor.pid))
    if code is None:
        os.kill(min(before), signal.SIGKILL)
    else:
        enqueue({"do": "exit", "code": code, "times": 1, "file": str(notes)})
    supervisor.says("A worker process ended and is started again", 1)
    supervisor.says("Worker started", 3)
    now = set(children_of(supervisor.pid))
    assert (len(now), len(now & before)) == (2, 1)
    supervisor.ends()


@pytest.mark.slow
def test_workers_do_not_outlive_their_supervisor(start: Start, notes: Path) -> None:
    sleeping(notes, 2, 0.5)
    supervisor = start("--processes", "2", "--concurrency", "1")
    eventually(lambda: words(notes, "start") == 2, "both run")
    children = children_of(supervisor.pid)
    supervisor.send(signal.SIGKILL)
    eventually(lambda: not any(alive(pid) for pid in children), "they are gone")
    assert words(notes, "end") == 2, "gracefully"


@pytest.mark.slow
def test_max_jobs_replace_a_process(start: Start, notes: Path) -> None:
    sleeping(notes, 40, 0.001)
    supervisor = start("--processes", "2", "--max-jobs", "5")
    eventually(lambda: len(results()) == 40, "all are done")
    supervisor.ends()
    runs = Counter(pid for _, word, pid in lines(notes) if word == "end")
    assert len(runs) >= 8
    assert max(runs.values()) <= 5


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("--processes", "2")], ids=["alone", "supervised"])
def test_a_job_that_does_not_end_costs_its_process_and_nothing_else(
    start: Start, notes: Path, arguments: tuple[str, ...]
) -> None:
    (stuck,) = enqueue({"do": "hang", "soft": 0.1, "hard": 0.3, "delay": 3_600_000, "file": str(notes)})
    worker = start("--concurrency", "2", *arguments)
    eventually(lambda: words(notes, "start") == 1, "it hangs")
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


def ask(port: int) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_health(start: Start, tmp_path: Path, processes: int) -> None:
    port, file = free_port(), tmp_path / "health"
    worker = start("--health-port", str(port), "--health-file", str(file), "--processes", str(processes))
    worker.says("Worker started", processes)
    # It is well when its parts have looked at the database once, which is after it said that.
    eventually(lambda: ask(port)[0] == 200, "it is well")
    _, figures = ask(port)
    assert figures["healthy"] is True
    if processes == 2:
        eventually(lambda: all(ask(port)[1]["workers"]), "both report")
        # A child that does nothing any more makes the whole ill.
        stopped = children_of(worker.pid)[0]
        os.kill(stopped, signal.SIGSTOP)
        eventually(lambda: ask(port)[0] == 503, "it is seen")
        os.kill(stopped, signal.SIGCONT)
        eventually(lambda: ask(port)[0] == 200, "it is well again")
    eventually(file.exists, "the file is there")
    assert json.loads(file.read_text())["node"]
    worker.ends()
    assert not file.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "words_said"), [
    (("--concurrency", "0"), "CONCURRENCY'] must be an integer, 1 to 1,000; it is 0"),
    (("--handler", "nothing.Here"), "No module named 'nothing'"),
    (("--handler", "tests.worker.handlers.note", "--processes", "2"), "unexpected keyword argument 'project'"),
    (("--database", "nowhere"), "'nowhere' is not a PostgreSQL database of DATABASES"),
    (("--health-file", "/nonexistent/file", "--processes", "2"), "/nonexistent"),
    (("--health-port", "taken"), "Address already in use"),
    (("--reload", "--processes", "2"), "--reload runs one process, and 2 are asked for: add --processes 1."),
    (("--reload", "--burst"), "leave --burst and --max-jobs out"),
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


@pytest.mark.slow
def test_the_other_name_of_the_command(subprocess_env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "django", "leasequeue_worker", "--burst", "--no-reaper"]
    handler = ["--handler", "tests.worker.handlers.ScriptHandler"]
    subprocess.run([*command, *handler], env=subprocess_env, capture_output=True, check=True, timeout=500)


@pytest.mark.slow
def test_a_database_without_our_tables(private_server: TemporaryServer) -> None:
    with starting(child_environment(private_server.url())) as begin:
        worker = begin()
        assert worker.wait() == 1
    assert "run migrate" in worker.text
    assert "Traceback" not in worker.text


def shown() -> list[tuple[str, str, int]]:
    """What the status command says of workers: node, state, jobs running."""
    workers = json.loads(said("leasequeue_status", "--json"))["workers"]
    return [(line["node"], line["state"], line["running"]) for line in workers]


@pytest.mark.slow
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
