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

    def __init__(self, role: str, command: list[str], environment: Mapping[str, str], directory: Path) -> None:
        self.role = role
        self._command = command
        self._environment = {**os.environ, **environment, ROLE: role}
        self._log = directory / f"{role}.log"
        self.process: subprocess.Popen[bytes] | None = None
        #: When to start it again.
        self.due = 0.0
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """Its process number, ``None`` while it does not run."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    def start(self) -> None:
        """Start the process."""
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
        self._directory = directory
        self._environment = {**environment, DIRECTORY: str(directory)}
        self._witness = witness
        self.members: dict[str, Member] = {}
        #: Processes that said hello: number -> when they were started, in the kernel's words.
        self._watched: dict[int, str] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="crew", daemon=True)

    def add(self, role: str, *command: str, **environment: str) -> None:
        """Start a process."""
        member = Member(role, [sys.executable, *command], {**self._environment, **environment}, self._directory)
        with self._lock:
            self.members[role] = member
            member.start()
        if not self._thread.is_alive():
            self._thread.start()

    def watch(self, pid: int) -> None:
        """Say when this process ends, whoever its parent is."""
        if (born := _born(pid)) is None:
            self._witness.say("died", pid, "")
        else:
            with self._lock:
                self._watched[pid] = born

    def kill(self, role: str, pid: int, fault: str) -> None:
        """Kill a process of a member."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self._witness.say("kill", pid, fault)

    def pids(self, role: str) -> list[int]:
        """Return a member's process, and its children."""
        pid = self.members[role].pid
        return [] if pid is None else [pid, *_children(pid)]

    def delay(self, role: str, seconds: float) -> None:
        """Do not start a member again before so many seconds."""
        self.members[role].due = time.monotonic() + seconds

    def ask_to_end(self, role: str) -> None:
        """Ask a member to end; it is started again then."""
        if (pid := self.members[role].pid) is not None:
            os.kill(pid, signal.SIGTERM)

    def wait_ended(self, role: str, starts: int, seconds: float = ENDING) -> bool:
        """Wait until a member's process of so many starts has ended; return whether it has."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.members[role].starts > starts or self.members[role].pid is None:
                return True
            time.sleep(LOOK)
        return False

    def wait_running(self, role: str, seconds: float = 30.0) -> None:
        """Wait until a member runs again."""
        end = time.monotonic() + seconds
        while self.members[role].pid is None and time.monotonic() < end:
            time.sleep(LOOK)

    def dismiss(self, *roles: str) -> bool:
        """Ask members to end for good; return whether all ended in time."""
        with self._lock:
            leaving = [self.members.pop(role) for role in roles if role in self.members]
        asked = [member for member in leaving if member.pid is not None]
        for member in asked:
            assert member.process is not None
            member.process.terminate()
        end = time.monotonic() + ENDING
        in_time = True
        for member in asked:
            assert member.process is not None
            try:
                member.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                in_time = False
                member.process.kill()
                member.process.wait()
        return in_time

    def close(self) -> None:
        """End all of them, at once."""
        self._over.set()
        with self._lock:
            for member in self.members.values():
                if member.pid is not None and member.process is not None:
                    member.process.kill()
                    member.process.wait()
            for pid, born in self._watched.items():
                if _born(pid) == born:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def _watch(self) -> None:
        while not self._over.wait(LOOK):
            with self._lock:
                for pid, born in list(self._watched.items()):
                    if _born(pid) != born:
                        del self._watched[pid]
                        self._witness.say("died", pid, "")
                for member in self.members.values():
                    self._keep(member)

    def _keep(self, member: Member) -> None:
        if member.process is None or member.process.poll() is None:
            return
        now = time.monotonic()
        if member.due <= 0:
            member.due = now + RESTART
        elif now >= member.due:
            member.due = 0.0
            member.start()


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _born(pid: int) -> str | None:
    """Return when a process was started, ``None`` if it has ended."""
    stat = _stat(pid)
    return None if not stat or stat[0] in "ZX" else stat[19]


def _children(parent: int) -> list[int]:
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return sorted(pid for pid in found if (stat := _stat(pid)) and stat[0] not in "ZX" and int(stat[1]) == parent)
