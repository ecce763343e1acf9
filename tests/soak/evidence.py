"""The evidence: files that say what happened, one for each process, only ever appended to.

Producers, handlers, readers and whoever makes the faults write; the oracle reads. A line is a JSON array
``[kind, time, who, ...]``: the time is CLOCK_MONOTONIC in nanoseconds, the same clock for all processes of a machine,
and ``who`` is the process (its number and chance, since numbers come again). The kinds:

=========== ================================= =================================================================
kind        said by                           what follows
=========== ================================= =================================================================
hello       every process, first              role, process number
try         a producer, before a transaction  [[job, queue, mode], ...]
under       the same                          [[job, key, how many at once, whether all of the key are its own], ...]
paced       the same                          [job, ...], how many starts in how many ns
after       the same                          [[job, [job before, ...], however these end], ...]
recall      the same, before a cancel         [job, ...]
committed,  the same, after COMMIT was        [job, ...]
workflow    answered
undone      the same, after a rollback        [job, ...]
recalled,   the same, after they were taken   [job, ...]
stays       out, or were not
unique      the same, after COMMIT            job, key that it holds until its end
emitted     the same                          job, place, when it was tried first
healed      an operator, of dead letters      [job, ...]
took        a handler of a workflow's job     job, whether it got the right values
acked       a consumer, after its ack         job, claim, claimed, when it was asked, outcome (``doubt``: not answered)
forged      the same, not the holder's        job, what was tried, outcome
comes       a durable job, before a part      job, place, claim, kind, seconds
did, passed the same, within a step; after it job, place, claim, what it returns, or got
suspended   the same, when it ends there      job, place, claim
effect      the same, after an atomic step    job, place, claim, rows that are there
paid        who has cancelled a running job   job, when it was tried first, its rows at the answer, and a second later
repaid      a job that undoes its steps       job, place, rows that this has removed
saga        who has enqueued it               job, when it was tried first
answer      a caller that got its answer      job, whether it is the right one
start       a handler, first thing            job, seq, delivery, claim, claimed, deadline, thread, queue, whether alone
told        the same, when its lease is lost  job, claim, reason
end         the same, last thing              job, claim, how (done, raised, stopped), thread
last        the same, before the process ends job, claim, cause, whether a suspect could have one of its own
            of its worker
put         a writer, before a transaction    topic, [item, ...]
kept        the same, after COMMIT            topic, [item, ...]
dropped     the same, after a rollback        topic, [item, ...]
reset       a reader that was sent back       reader, topic, where it begins again
read        a reader, of each page            reader, topic, [[seq, item], ...]
events      that of the event stream          [[id, transaction, kind, claim, at, deadline, [seq, ...]], ...]
upto        the same                          every event that is older than this was read
fault       who makes the faults              number, name, "begin" or "end", [role, ...]
kill, stop, the same, at a process            process number, name of the fault
cont, died
crash       the same                          (PostgreSQL has ended without a word)
failover    the same                          known, ended: what was answered in between may be lost
stepped     the same: the server's clock      by how many ns
cancelled   the same: statements              how many
paused,     the same, after the first, and    queue
resumed     before the second
back        the same: work may go on          name of the fault, role or "" for the server
dead        the last look                     job
there       the same: what a topic holds      topic, [[seq, item], ...]
effects     the same: of atomic steps         [[job, place, rows], ...]
differs     the same                          what is left over or inconsistent, as text
=========== ================================= =================================================================

Times inside an entry (claimed, deadline, at) are on the same clock.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

from . import clock

Entry = list[Any]

#: The roles and directory of a process of the soak, in its environment; and who its worker is, where it runs a suspect.
DIRECTORY, ROLE, WORKER = "SOAK_DIRECTORY", "SOAK_ROLE", "SOAK_WORKER"
#: Leases of the soak's queues in ms: short, so that much happens.
LEASE_MS = 4_000
#: The same of the queue whose workflows are cancelled: long enough for workers to hear of that by nothing else.
HALTED, HALTED_LEASE_MS = "halted", 12_000
#: The queue on the second server, which is named as it is.
FAR = "far"
#: The role of the process that makes the faults.
MAKER = "soak"
SECOND = clock.SECOND
#: Seconds that a durable job waits for its event.
TIMEOUT = 25.0


class Witness:
    """Writes what one process has to say. Every entry is one write to a file opened with O_APPEND."""

    def __init__(self, directory: Path, role: str) -> None:
        name = f"{os.getpid()}.{secrets.token_hex(3)}"
        worker = os.environ.get(WORKER, "")
        #: Whether this process runs a suspect: what it says, its worker says.
        self.apart = worker.startswith(f"{os.getppid()}.")
        self.who = worker if self.apart else name
        path = directory / f"{role}.{name}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not self.apart:
            self.say("hello", role, os.getpid())

    def say(self, kind: str, *values: Any) -> int:
        now = time.monotonic_ns()
        os.write(self._file, json.dumps([kind, now, self.who, *values], separators=(",", ":")).encode() + b"\n")
        return now


_own: dict[int, Witness] = {}
_lock = threading.Lock()


def witness() -> Witness:
    """Return this process's witness, named by its environment; a forked child gets one of its own."""
    found = _own.get(os.getpid())
    if found is None:
        with _lock:
            found = _own.get(os.getpid())
            if found is None:
                found = _own[os.getpid()] = Witness(Path(os.environ[DIRECTORY]), os.environ[ROLE])
    return found


def work_until_told(threads: Sequence[threading.Thread], stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            time.sleep(0.1)


def monotonic(at: datetime, queue: str = "") -> int:
    """Return a time of the clock of a queue's server on the monotonic one. That of the second is the machine's."""
    if queue == FAR:
        return time.monotonic_ns() - time.time_ns() + round(at.timestamp() * SECOND)
    return clock.monotonic(at, Path(os.environ[DIRECTORY]))


def lease(deadline: datetime, queue: str = "") -> tuple[int, int]:
    """Return when a lease was given or extended, and when it ends; the clock may have been stepped in between."""
    length = HALTED_LEASE_MS if queue == HALTED else LEASE_MS
    begin = monotonic(deadline - timedelta(milliseconds=length), queue)
    return begin, begin + length * SECOND // 1_000


class Tail:
    """Reads what was appended to the files of a directory since the last look."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}

    def look(self) -> list[Entry]:
        """Return the new entries by time, each with the faults before it. A line that is not whole yet comes later."""
        entries: list[Entry] = []
        for path in sorted(self._directory.glob("*.jsonl"), key=lambda path: path.name.startswith(MAKER)):
            before = self._read.get(path, 0)
            if path.stat().st_size == before:
                continue
            with path.open("rb") as file:
                file.seek(before)
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._read[path] = before + len(whole) + 1
                entries += [json.loads(line) for line in whole.split(b"\n")]
        return sorted(entries, key=itemgetter(1))
