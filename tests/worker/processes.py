"""Worker processes, started as an operator starts them."""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import psycopg

from django_leasequeue.tasks.api import TaskResultStatus


class Process:
    """A process with a session of its own, and its log: a Python module with arguments."""

    def __init__(self, env: dict[str, str], *arguments: str) -> None:
        self.log: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments], env=env, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)

    def says(self, text: str, times: int = 1, seconds: float = 300) -> None:
        """Wait until so many lines of the log hold ``text``."""
        end = time.monotonic() + seconds
        while sum(text in line for line in self.log) < times:
            assert time.monotonic() < end, f"it never said {text!r}:\n{self.text}"
            assert self._process.poll() is None or self._reader.is_alive(), f"it ended:\n{self.text}"
            time.sleep(0.01)

    @property
    def text(self) -> str:
        return "".join(self.log)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = 300) -> int:
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.text}") from None
        self._reader.join(5)  # a child that outlives it may hold the pipe
        return code

    def ends(self) -> None:
        self.send(signal.SIGTERM)
        assert self.wait() == 0, self.text

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End it and all its children: its session holds nobody else."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(60)
        self._reader.join(5)  # a child that outlives it may hold the pipe
        self._process.stderr.close()


class WorkerProcess(Process):
    """``manage.py runworker`` with the script handler, with the reaper's duties or without."""

    def __init__(self, env: dict[str, str], *arguments: str, reaper: bool = False) -> None:
        duties = [] if reaper else ["--no-reaper"]
        script = ("--handler", "tests.worker.handlers.ScriptHandler")
        super().__init__(env, "django", "runworker", *duties, *script, *arguments)


#: Arguments for tasks in place of the script handler's jobs.
TASKS = ("--handler", "django_leasequeue.tasks.handler.TaskHandler")

Start = Callable[..., WorkerProcess]


@contextmanager
def starting(env: dict[str, str]) -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda *arguments, **how: stack.enter_context(closing(WorkerProcess(env, *arguments, **how)))


def work_off(env: dict[str, str], *arguments: str) -> str:
    """Run a worker until no job is left; return its log."""
    with starting(env) as start:
        worker = start("--burst", *TASKS, *arguments)
        assert worker.wait() == 0, worker.text
        return worker.text


def finished(*results: Any) -> bool:
    """Read results anew; return whether all have ended."""
    for result in results:
        result.refresh()
    return all(result.is_finished for result in results)


def completed(*results: Any) -> bool:
    finished(*results)
    bad = [(result.status, result.errors) for result in results if result.status != TaskResultStatus.SUCCESSFUL]
    assert not bad
    return all(result.attempts == 1 for result in results)


def error_of(result: Any) -> str:
    result.refresh()
    assert result.status == TaskResultStatus.FAILED, result.status
    return str(result.errors[-1].exception_class_path).rsplit(".", 1)[1]


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(stat[1]) == pid and stat[0] != "Z":
                found.append(int(entry.name))
    return sorted(found)


def alive(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return b"State:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()
    return False


def ask(port: int, path: str) -> tuple[int, str]:
    """What a worker answers at its health port."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=300) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def fetch(dsn: str, query: str, *args: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(query, args).fetchall()  # type: ignore[arg-type]  # a literal of the test
