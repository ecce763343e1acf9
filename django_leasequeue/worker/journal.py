"""The journal of a worker: which jobs it has started, outside of its memory, for the worker that takes over.

A process that is killed says nothing. What it had claimed and not started has done nothing: it is given back at once,
and that delivery does not count. What it had started is a suspect: its lease is ended, and it runs alone when it comes
again.
The journal is a memory-mapped file: what is written to it survives the process, and writing costs no system call.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import secrets
import stat
import struct
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from django.db import connections

from ..conf.options import WorkerOptions
from ..engine import LeasedJob, Release, extend, release
from ..engine.limits import MAX_BATCH, MIN_LEASE_MS
from .link import DatabaseLink, read_strays

try:
    import fcntl
except ImportError:  # no journals on this system: what a killed process held comes back when its leases expire
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("django_leasequeue.worker")

_HEADER = 1_024
_SLOT = struct.Struct("<qq")
_SIZE, _pack = _SLOT.size, _SLOT.pack_into
#: In the place of a job's number: what follows is a claim.
_CLAIM = -1
#: Jobs of one process at most, for a look at what it held.
MOST_HELD = 100_000
#: Seconds after which a dead process is looked at once more: a statement of it may have been on its way.
AGAIN = 2.0
#: Seconds after which the journal of a dead process is of no use any more.
STALE = 2 * 86_400

#: Journals of this very process: its locks do not keep it from taking them for dead ones.
_own: set[Path] = set()


def _directory() -> Path | None:
    """Return the private directory of this user's journals, ``None`` if there is none to be trusted."""
    path = Path(tempfile.gettempdir()) / f"leasequeue-{os.geteuid()}"
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return path if private else None


def _place(options: WorkerOptions) -> list[str]:
    """Return what tells the databases and projects apart whose workers share the directory."""
    database = connections[options.database].settings_dict
    return [*(str(database.get(name) or "") for name in ("HOST", "PORT", "NAME")), options.project]


def _places(first: int, count: int) -> Callable[[], int]:
    """Return a function that gives the places of ``count`` slots in turn."""
    return cycle(range(_HEADER + first * _SIZE, _HEADER + (first + count) * _SIZE, _SIZE)).__next__


class Journal:
    """Notes which jobs were started, and the last claims. Without a place to write to it does nothing.

    There is a slot for each run that goes on, and a ring of the ``ended`` ones of which the database may not know.
    """

    def __init__(self, node: str, options: WorkerOptions, slots: int, ended: int) -> None:
        count = slots + 2 * ended
        self._free = deque(range(slots))
        self._path: Path | None = None
        self._descriptor = -1
        #: Written to even where there is no file.
        self._memory: mmap.mmap | bytearray = bytearray()
        #: Places in the file, one after the other and from the beginning again: for several threads.
        self._next_end = _places(slots, ended)
        self._next_claim = _places(slots + ended, ended)
        size = _HEADER + count * _SIZE
        # If the options name the node, another process may have the name later, or now.
        header = {"node": node, "own": not options.node, "place": _place(options), "slots": count}
        try:
            self._open(json.dumps(header), size)
        except OSError as error:
            logger.warning("No journal: leases of a killed process will have to expire", extra={"error": str(error)})
            self.close()
        if self._path is None:
            self._memory = bytearray(size)

    def _open(self, header: str, size: int) -> None:
        directory = _directory() if fcntl is not None and len(header.encode()) < _HEADER else None
        if directory is None:
            return
        path = directory / f"{secrets.token_hex(16)}.journal"
        _own.add(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._path = path
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        # All of it now: a disk that is full later must not kill who writes to the memory.
        os.posix_fallocate(self._descriptor, 0, size)
        self._memory = mmap.mmap(self._descriptor, size)
        self._memory[:_HEADER] = header.encode().ljust(_HEADER)

    def slot(self) -> int:
        return self._free.popleft()

    def free(self, slot: int) -> None:
        self._free.append(slot)

    def started(self, slot: int, job: LeasedJob) -> None:
        _pack(self._memory, _HEADER + slot * _SIZE, job.seq, job.token)

    def ended(self, job: LeasedJob) -> None:
        _pack(self._memory, self._next_end(), job.seq, job.token)

    def claimed(self, claim: int) -> None:
        _pack(self._memory, self._next_claim(), _CLAIM, claim)

    def close(self) -> None:
        """End the journal and remove its file: the database knows of everything."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        if self._path is not None:
            _own.discard(self._path)
        self._path, self._descriptor = None, -1


class JournalContents(NamedTuple):
    """The last state of a dead process, as its journal says it; started jobs as (seq, token)."""

    node: str
    #: Whether the name was that process's alone: then everything that this node holds was.
    own: bool
    started: set[tuple[int, int]]
    claims: set[int]


class OrphanRecovery:
    """Takes over what killed workers of this host, this database and this project have left."""

    def __init__(self, options: WorkerOptions, link: DatabaseLink) -> None:
        self._options = options
        self._link = link
        self._directory: Path | None = None
        if fcntl is not None:
            with suppress(OSError):
                self._directory = _directory()
        #: Taken over, to be looked at once more: (path, descriptor, what it says, when).
        self._again: list[tuple[Path, int, JournalContents, float]] = []

    def look(self) -> bool:
        """Take over the journals of processes that are gone; return whether there were any."""
        if self._directory is None:
            return False
        now, found_any, place = time.monotonic(), False, _place(self._options)
        for entry in [entry for entry in self._again if entry[3] <= now]:
            path, descriptor, contents, _ = entry
            self._settle(contents)
            self._again.remove(entry)
            path.unlink(missing_ok=True)
            os.close(descriptor)
        for path, descriptor in self._dead():
            read = _read(descriptor, place)
            if read is not None:
                try:
                    self._settle(read)
                except BaseException:
                    os.close(descriptor)
                    raise
                found_any = True
                self._again.append((path, descriptor, read, time.monotonic() + AGAIN))
                continue
            if time.time() - os.fstat(descriptor).st_mtime > STALE:
                path.unlink(missing_ok=True)
            os.close(descriptor)
        return found_any

    def close(self) -> None:
        for _, descriptor, *_ in self._again:
            os.close(descriptor)
        self._again.clear()

    def _dead(self) -> Iterator[tuple[Path, int]]:
        assert self._directory is not None
        mine = {entry[0] for entry in self._again}
        for path in list(self._directory.glob("*.journal")):
            # Opening and closing a file that this process has locked would unlock it.
            if path in _own or path in mine:
                continue
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # it lives
                os.close(descriptor)
                continue
            yield path, descriptor

    def _settle(self, contents: JournalContents) -> None:
        """Give back what a dead worker had not started, and end the leases of what it had."""
        project, node = self._options.project, contents.node
        held = [
            lease
            for lease in self._link.run(read_strays(None, node, [], MOST_HELD))
            if contents.own or lease[1] in contents.claims
        ]
        unstarted = [lease for lease in held if lease not in contents.started]
        broken = [lease for lease in held if lease in contents.started]
        for at in range(0, len(unstarted), MAX_BATCH):
            releases = [Release(seq, token, 0) for seq, token in unstarted[at : at + MAX_BATCH]]
            self._link.run(release(releases, node, project=project, unstarted=True))
        for at in range(0, len(broken), MAX_BATCH):
            seqs, tokens = zip(*broken[at : at + MAX_BATCH], strict=True)
            self._link.run(extend(seqs, node, MIN_LEASE_MS, tokens=tokens, project=project))
        if held:
            logger.warning(
                "Jobs of a worker that is gone are free again",
                extra={"gone": node, "not_started": len(unstarted), "started": len(broken)},
            )


def _read(descriptor: int, place: list[str]) -> JournalContents | None:
    """Return what the journal of a worker of this place says; ``None``: it is another's, or none."""
    try:
        header = json.loads(os.pread(descriptor, _HEADER, 0))
        if header["place"] != place:  # there may be many of other databases: what they noted is not read
            return None
        notes = set(_SLOT.iter_unpack(os.pread(descriptor, header["slots"] * _SLOT.size, _HEADER)))
        started = {note for note in notes if note[0] != _CLAIM}
        return JournalContents(header["node"], header["own"], started, {claim for _, claim in notes})
    except (ValueError, KeyError, TypeError, struct.error):
        return None
