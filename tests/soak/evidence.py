"""The evidence: files that say what happened, one for each process, only ever appended to.

Producers, handlers, readers and whoever makes the faults write; the oracle reads. A line is a JSON array
``[kind, time, who, ...]``: the time is CLOCK_MONOTONIC in nanoseconds, the same clock for all processes of a machine,
and ``who`` is the process (its number and chance, since numbers come again). The kinds:

=========== ==================================================== ============================================
kind        said by                                              what follows
=========== ==================================================== ============================================
hello       every process, first                                 role, process number
try         a producer, before a transaction                     [[job, queue, mode], ...]
committed   a producer, after COMMIT was answered                [job, ...]
undone      a producer, after a rollback for sure                [job, ...]
under       a producer, before a transaction                     [[job, key, how many at once, whether this
                                                                 producer has all of the key], ...]
paced       the same                                             [job, ...], how many starts in how many ns
after       the same                                             [[job, [job before, ...], however these end], ...]
workflow    a producer, after COMMIT was answered                [job, ...]
unique      the same                                             job, key that it holds until its end
recall      a producer, before it cancels                        [job, ...]
recalled    a producer, after they were taken out                [job, ...]
stays       a producer, after they were not                      [job, ...]
took        a handler of a workflow's job                        job, whether it got the right values
healed      an operator, after dead letters came back            [job, ...]
acked       a consumer, after its ack was answered, or not       job, claim, claimed, when it was asked, outcome
forged      the same, under another token or name                job, what was tried, outcome
comes       a durable job, before a part of it               job, place, claim, kind, seconds
did         the same, within a step                          job, place, claim, what it returns
passed      the same, after the part                         job, place, claim, what it got
suspended   the same, when it gives its thread up there      job, place, claim
effect      the same, after an atomic step                   job, place, claim, rows that are there
emitted     a producer, after COMMIT was answered            job, place, when it was tried first
effects     the last look                                    [[job, place, rows], ...]
answer      a caller that got its answer                         job, whether it is the right one
start       a handler, first thing                               job, seq, delivery, claim, claimed, deadline,
                                                                 thread, queue, whether it is run alone
told        a handler, when it sees that its lease is lost       job, claim, reason
end         a handler, last thing                                job, claim, how (done, raised, stopped), thread
last        a handler that is about to end its process           job, claim, cause
put         a writer of a log, before a transaction              topic, [item, ...]
kept        a writer of a log, after COMMIT was answered         topic, [item, ...]
dropped     a writer of a log, after a rollback for sure         topic, [item, ...]
reset       a reader that was sent back after a failover         reader, topic, where it begins again
read        a reader, of each page                               reader, topic, [[seq, item], ...]
events      the reader of the event stream, of each page         [[id, transaction, kind, claim, at, deadline,
                                                                 [seq, ...]], ...]
upto        the same                                             every event that is older than this was read
fault       who makes the faults                                 number, name, "begin" or "end", [role, ...]
kill, stop, who makes the faults, at a process                   process number, name of the fault
cont, died
crash       who makes the faults: PostgreSQL ends without a word
failover    the same: another server takes over, without some    known, ended: what was answered between these times
            of what was answered                                 may be lost
stepped     the same: the server's clock                         by how many ns
cancelled   the same: statements                                 how many
paused      the same, after the queue was paused                 queue
resumed     the same, before it is resumed                       queue
back        who makes the faults: work may go on from now        name of the fault, role or "" for the server
dead        the last look: a job is dead                         job
there       the last look: what a topic holds                    topic, [[seq, item], ...]
differs     the last look: something is left over or inconsistent text
=========== ==================================================== ============================================

Times inside an entry (claimed, deadline, at) are on the same clock.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

from . import clock

Entry = list[Any]

#: The roles and directory of a process of the soak, in its environment.
DIRECTORY, ROLE = "SOAK_DIRECTORY", "SOAK_ROLE"
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
        self.who = f"{os.getpid()}.{secrets.token_hex(3)}"
        path = directory / f"{role}.{self.who}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.say("hello", role, os.getpid())

    def say(self, kind: str, *values: Any) -> int:
        """Write an entry; return its time."""
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
