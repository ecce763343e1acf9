"""The crew: the processes of the soak, each started again when it ends, as an init system would."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from .evidence import DIRECTORY, ROLE, Witness

#: Seconds between looks at processes.
LOOK = 0.05
#: Seconds after which a process that ended is started again.
RESTART = 0.2
#: Address space of a process: a task that uses up memory meets this limit, not the machine's.
ADDRESS_SPACE = 4 * 1024**3
#: Seconds that a process gets to end when it is asked to.
ENDING = 40.0


class Member:
    """One place in the crew and the process that is in it now."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._command, self._environment, self._log = command, environment, log
        #: When to start it again.
        self.due = 0.0
        self.starts = 0
        self.start()

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process.poll() is None else None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        resource.prlimit(self.process.pid, resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        self.starts += 1


class Crew:
    """Starts processes, starts them again, and knows of every one of them when it has ended."""

    def __init__(self, directory: Path, environment: Mapping[str, str], witness: Witness) -> None:
        self._directory, self._witness = directory, witness
        self._environment = {**environment, DIRECTORY: str(directory)}
        self.members: dict[str, Member] = {}
        #: Processes that said hello.
        self._watched: set[psutil.Process] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="crew", daemon=True)

    def add(self, role: str, *command: str, **environment: str) -> None:
        every = {**os.environ, **self._environment, **environment, ROLE: role}
        with self._lock:
            self.members[role] = Member([sys.executable, *command], every, self._directory / f"{role}.log")
        if not self._thread.is_alive():
            self._thread.start()

    def watch(self, pid: int) -> None:
        try:
            with self._lock:
                self._watched.add(psutil.Process(pid))
        except psutil.NoSuchProcess:
            self._witness.say("died", pid, "")

    def kill(self, role: str, pid: int, fault: str) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self._witness.say("kill", pid, fault)

    def pids(self, role: str) -> list[int]:
        if (pid := self.members[role].pid) is not None:
            with suppress(psutil.NoSuchProcess):
                return [pid, *sorted(child.pid for child in psutil.Process(pid).children() if _lives(child))]
        return []

    def wait_ended(self, role: str, starts: int, seconds: float = ENDING) -> bool:
        """Wait until a member's process of so many starts has ended; return whether it has."""
        end, member = time.monotonic() + seconds, self.members[role]
        while not (ended := member.starts > starts or member.pid is None) and time.monotonic() < end:
            time.sleep(LOOK)
        return ended

    def wait_running(self, role: str, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while self.members[role].pid is None and time.monotonic() < end:
            time.sleep(LOOK)

    def dismiss(self, *roles: str) -> bool:
        with self._lock:
            leaving = [self.members.pop(role) for role in roles if role in self.members]
        asked = [member for member in leaving if member.pid is not None]
        for member in asked:
            member.process.terminate()
        end, in_time = time.monotonic() + ENDING, True
        for member in asked:
            try:
                member.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                in_time = False
                member.process.kill()
                member.process.wait()
        return in_time

    def close(self) -> None:
        self._over.set()
        with self._lock:
            for member in self.members.values():
                member.process.kill()
                member.process.wait()
            for process in self._watched:
                with suppress(psutil.NoSuchProcess):
                    process.kill()

    def _watch(self) -> None:
        while not self._over.wait(LOOK):
            with self._lock:
                for gone in [process for process in self._watched if not _lives(process)]:
                    self._watched.remove(gone)
                    self._witness.say("died", gone.pid, "")
                for member in self.members.values():
                    if member.pid is not None:
                        continue
                    if member.due <= 0:
                        member.due = time.monotonic() + RESTART
                    elif time.monotonic() >= member.due:
                        member.due = 0.0
                        member.start()


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False
