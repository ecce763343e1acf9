"""The journal of a worker: a file that lists its started jobs, for another worker after a kill.

Another worker releases the claimed jobs that had not started; their delivery does not count. Started jobs are suspects:
it ends their leases, and they run alone next time.
The journal is a memory-mapped file: it survives the process, and a write costs no system call.
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
from collections.abc import Callable, Iterator, Sequence
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
except ImportError:  # no journals on this system: jobs of a killed process wait until their leases expire
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("django_leasequeue.worker")

_HEADER = 1_024
_SLOT = struct.Struct("<qq")
_SIZE, _pack = _SLOT.size, _SLOT.pack_into
#: Stands for a job's number in the entry of a claim.
_CLAIM = -1
#: Jobs of one killed process, at most.
MOST_HELD = 100_000
#: Seconds until a dead process is recovered a second time: a statement of it may still have been on its way.
AGAIN = 2.0
#: Seconds after which the journal of a dead process is useless.
STALE = 2 * 86_400
#: Journals of this process: file locks do not protect them from itself.
_own: set[Path] = set()


def _directory() -> Path | None:
    """Return the private directory of this user's journals; ``None``: another account has or can read it."""
    path = Path(tempfile.gettempdir()) / f"leasequeue-{os.geteuid()}"
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return path if private else None


def _identity(options: WorkerOptions) -> list[str]:
    """Return the identity of the worker's database and project: others share the directory."""
    database = connections[options.database].settings_dict
    return [*(str(database.get(name) or "") for name in ("HOST", "PORT", "NAME")), options.project]


def _offsets(first: int, count: int) -> Callable[[], int]:
    """Return a function that cycles through the file offsets of ``count`` slots."""
    return cycle(range(_HEADER + first * _SIZE, _HEADER + (first + count) * _SIZE, _SIZE)).__next__


class Journal:
    """Records started jobs and the last claims. Without a file it has no effect.

    It has a slot for each current run, and a ring of ``ended`` runs that the database may not know.
    """

    def __init__(self, node: str, options: WorkerOptions, slots: int, ended: int) -> None:
        count = slots + 2 * ended
        self._free = deque(range(slots))
        #: The slots of jobs that run together, by seq and token.
        self._together: dict[tuple[int, int], list[int]] = {}
        self._path: Path | None = None
        self._descriptor = -1
        #: The file, or a stand-in.
        self._memory: mmap.mmap | bytearray = bytearray()
        # Thread-safe: ``__next__`` of a cycle is atomic.
        self._next_end = _offsets(slots, ended)
        self._next_claim = _offsets(slots + ended, ended)
        size = _HEADER + count * _SIZE
        # A node named by the options may be another process's as well.
        header = {"node": node, "own": not options.node, "identity": _identity(options), "slots": count}
        try:
            self._open(json.dumps(header), size)
        except OSError as error:
            logger.warning("No journal: after a kill, leases have to expire", extra={"error": str(error)})
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
        # Allocated at once: with a disk that is full later, a write to the memory would kill the process.
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

    def started_together(self, jobs: Sequence[LeasedJob]) -> None:
        """Note the start of jobs that run together, each in a slot of its own."""
        slots = [self._free.popleft() for _ in jobs]
        for slot, job in zip(slots, jobs, strict=True):
            _pack(self._memory, _HEADER + slot * _SIZE, job.seq, job.token)
        self._together[jobs[0].seq, jobs[0].token] = slots

    def ended_together(self, jobs: Sequence[LeasedJob]) -> None:
        """Note their end, or that their run was given up, whichever comes first."""
        slots = self._together.pop((jobs[0].seq, jobs[0].token), None) if jobs else None
        for job in jobs if slots else ():
            self.ended(job)
        self._free.extend(slots or ())

    def claimed(self, claim: int) -> None:
        _pack(self._memory, self._next_claim(), _CLAIM, claim)

    def close(self) -> None:
        """Remove the file: the database knows all ends."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        if self._path is not None:
            _own.discard(self._path)
        self._path, self._descriptor = None, -1


class JournalContents(NamedTuple):
    """The content of a dead process's journal; started jobs as (seq, token)."""

    node: str
    #: Whether only that process had the name: then all leases of the node were its own.
    own: bool
    started: set[tuple[int, int]]
    claims: set[int]


class OrphanRecovery:
    """Recovers the jobs of killed workers of this host, database and project."""

    def __init__(self, options: WorkerOptions, link: DatabaseLink) -> None:
        self._options = options
        self._link = link
        self._directory: Path | None = None
        if fcntl is not None:
            with suppress(OSError):
                self._directory = _directory()
        #: To recover a second time: (path, descriptor, contents, when).
        self._again: list[tuple[Path, int, JournalContents, float]] = []

    def recover(self) -> bool:
        """Release the jobs of processes that are gone; return whether there were any."""
        if self._directory is None:
            return False
        now, found_any, identity = time.monotonic(), False, _identity(self._options)
        for entry in [entry for entry in self._again if entry[3] <= now]:
            path, descriptor, contents, _ = entry
            self._settle(contents)
            self._again.remove(entry)
            path.unlink(missing_ok=True)
            os.close(descriptor)
        for path, descriptor in self._dead():
            read = _read(descriptor, identity)
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
            # To open and close a file that this process has locked would unlock it.
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
        """Release the jobs that a dead worker had not started, and end the leases of those that it had."""
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
                "Released the jobs of a worker that is gone",
                extra={"gone": node, "not_started": len(unstarted), "started": len(broken)},
            )


def _read(descriptor: int, identity: list[str]) -> JournalContents | None:
    """Return the contents of a journal; ``None``: it is of another database or project, or unreadable."""
    try:
        header = json.loads(os.pread(descriptor, _HEADER, 0))
        if header["identity"] != identity:  # there may be many of other databases: do not read their entries
            return None
        notes = set(_SLOT.iter_unpack(os.pread(descriptor, header["slots"] * _SLOT.size, _HEADER)))
        started = {note for note in notes if note[0] != _CLAIM}
        return JournalContents(header["node"], header["own"], started, {claim for _, claim in notes})
    except (ValueError, KeyError, TypeError, struct.error):
        return None
