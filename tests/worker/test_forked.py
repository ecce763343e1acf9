"""Processes and threads that tasks start: they are not the worker, and keep nothing of it."""

import os
import signal
import stat
import threading
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from django_leasequeue.engine.pool import Connection
from django_leasequeue.exceptions import NotBegun
from django_leasequeue.tasks import isolation
from django_leasequeue.tasks.api import TaskResultStatus
from tests.support.ports import free_port
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually
from tests.worker import rude_tasks as rude
from tests.worker.processes import TASKS, Start, alive, ask, children_of, completed, error_of, fetch, finished, work_off

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

SUPERVISED = ("--processes", "2")
ALONE_AND_SUPERVISED = pytest.mark.parametrize("arguments", [(), SUPERVISED], ids=["alone", "supervised"])


@pytest.mark.sample
@ALONE_AND_SUPERVISED
def test_signals_end_what_tasks_start(subprocess_env: dict[str, str], arguments: tuple[str, ...]) -> None:
    terminated, interrupted, pool = rude.terminate.enqueue(), rude.interrupt.enqueue(), rude.pool.enqueue()
    beside = [rude.write.enqueue(f"{number}") for number in range(5)]
    work_off(subprocess_env, *arguments)
    assert completed(terminated, interrupted, *beside)
    assert (terminated.return_value, interrupted.return_value) == (-signal.SIGTERM, -signal.SIGINT)
    assert error_of(pool) == "TimeoutError"


@pytest.mark.parametrize(("how", "code", "keeps"), [
    ("returns", 0, {}), ("raises", 1, {}), ("exits", 7, {}), ("writes", 0, {}), ("writes", 0, {"RUDE_POOL": "1"}),
    # How it ends matters little to the pool, and each is a worker.
    *(
        pytest.param(how, code, {"RUDE_POOL": "1"}, marks=pytest.mark.release)
        for how, code in (("returns", 0), ("raises", 1), ("exits", 7))
    ),
])  # fmt: skip
def test_a_child_that_leaves_its_task_ends_and_runs_no_other_job(
    subprocess_env: dict[str, str], tmp_path: Path, how: str, code: int, keeps: dict[str, str]
) -> None:
    forking = [rude.fork.enqueue(how, str(tmp_path)) for _ in range(3)]
    beside = [rude.write.enqueue(f"{number}") for number in range(20)]
    work_off({**subprocess_env, **keeps}, "--concurrency", "2")
    assert completed(*forking, *beside)
    assert {result.return_value for result in forking} == {code}
    assert Group.objects.count() == (23 if how == "writes" else 20)


def test_a_child_of_a_coroutine_ends_with_its_part(subprocess_env: dict[str, str]) -> None:
    forking, beside = rude.afork.enqueue(), [rude.awrite.enqueue(f"{number}") for number in range(10)]
    work_off(subprocess_env)
    assert completed(forking, *beside)
    assert forking.return_value == 0


@ALONE_AND_SUPERVISED
def test_a_child_that_outlives_its_worker_keeps_no_session_and_no_port(
    start: Start, tmp_path: Path, test_dsn: str, arguments: tuple[str, ...]
) -> None:
    port, others = free_port(), sessions(test_dsn)
    worker = start("--concurrency", "2", "--health-port", str(port), *arguments, *TASKS, reaper=True)
    # A socket that libpq makes in the moment of a fork is known to nobody yet.
    reapers = (
        "SELECT 1 FROM pg_stat_activity WHERE starts_with(application_name, 'leasequeue reaper') AND state = 'idle'"
    )
    eventually(lambda: fetch(test_dsn, reapers), "the reaper is connected")
    staying = rude.fork.enqueue("stays", str(tmp_path))
    eventually(lambda: finished(staying), "it has forked")
    child = int((tmp_path / "child").read_text())
    try:
        for pid in children_of(worker.pid) if arguments else ():
            os.kill(pid, signal.SIGKILL)
        worker.send(signal.SIGKILL)
        worker.wait()
        assert alive(child)
        own = {connection.connection.info.backend_pid}
        eventually(lambda: sessions(test_dsn) <= others | own, "the server has ended all their sessions", 15)
        with pytest.raises(URLError, match="refused"):
            ask(port, "/")
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_a_child_gives_up_a_connection_that_is_being_opened(test_dsn: str) -> None:
    opening = Connection._connect_gen(test_dsn)
    descriptor = next(opening)[0]
    if (child := os.fork()) == 0:
        os._exit(not os.path.samestat(os.fstat(descriptor), Path(os.devnull).stat()))
    assert os.waitpid(child, 0)[1] == 0
    assert stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    opening.close()


def sessions(dsn: str) -> set[int]:
    rows = fetch(dsn, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
    return {pid for (pid,) in rows}


@pytest.mark.parametrize("how", ["thread", "executor"])
@ALONE_AND_SUPERVISED
def test_the_process_ends_in_spite_of_a_thread_that_a_task_left_and_says_which(
    start: Start, arguments: tuple[str, ...], how: str
) -> None:
    leaving = rude.leave_thread.enqueue(how, 600)
    worker = start(*TASKS, *arguments)
    eventually(lambda: leaving.refresh() or leaving.status == TaskResultStatus.SUCCESSFUL, "it has left a thread")
    worker.send(signal.SIGTERM)
    assert worker.wait(60) == 0, worker.text
    assert "The process ends although threads of tasks still run: left-behind" in worker.text
    assert "(in tests.worker.rude_tasks.linger, line " in worker.text


def test_a_thread_that_ends_within_the_grace_is_waited_for(subprocess_env: dict[str, str]) -> None:
    leaving = rude.leave_thread.enqueue("thread", 2)
    log = work_off(subprocess_env)
    assert completed(leaving)
    assert "threads of tasks still run" not in log


def test_a_fork_waits_until_the_process_of_an_isolated_task_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its child would keep the pipe open that the start waits for, and that run would hang for as long as it lives."""
    starts, goes_on, forked = threading.Event(), threading.Event(), threading.Event()

    def start(*_: object, **__: object) -> None:
        starts.set()
        goes_on.wait(20)
        raise OSError("it is refused")

    def fork() -> None:
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
        forked.set()

    monkeypatch.setattr(isolation, "_refused_until", isolation._refused_until)
    monkeypatch.setattr(isolation.subprocess, "Popen", start)
    with ThreadResult(isolation._start) as starting:
        assert starts.wait(20)
        with ThreadResult(fork):
            assert not forked.wait(0.3)
            goes_on.set()
            assert forked.wait(20)
        with pytest.raises(NotBegun):
            starting.value()
