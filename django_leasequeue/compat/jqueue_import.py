"""Moving the jobs of a jqueue state file, local or an object, into a queue, each exactly once.

1. The file is marked, by a conditional write: from then on jqueue refuses it, and its jobs do not change any more.
2. One transaction adds the jobs and a line of the audit with the number of the hand-over.
3. The file is marked as done.

Who is killed in between begins again: a file that is marked is not marked anew, and a hand-over that the audit knows
adds nothing. A mark is a line of JSON behind the state: the first one says where the jobs go, the second that they are
there.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit
from uuid import uuid4
from zlib import crc32

from django.db import connections, transaction

from ..engine import NewJob, audit, clock
from ..engine.limits import MAX_KEY_BYTES, check_text
from ..engine.operation import Steps, operation
from ..exceptions import InvalidOption, PayloadTooLarge, StorageError
from ..models import OperatorAction
from ..queue.base import run, storage_errors
from ..queue.enqueue import MAX_MANY
from ..queue.queue import Queue
from .jqueue import kept_priorities
from .jqueue_values import Job, JobStatus, options_of, payload_limit, tag_of

ACTION = "import"
#: The space of the advisory locks of hand-overs.
LOCKS = 1_280_657_733
#: How often other processes may write the file before the mark is given up.
TRIES = 20
#: A worker that did not tell of its job for so long is gone.
STALE = timedelta(minutes=5)


class Moved(NamedTuple):
    """The outcome of an import."""

    #: Jobs that the file holds, without dead ones.
    jobs: int
    #: How many of them were added by this call, and how many were there already.
    added: int
    known: int
    #: How many were in progress, and how many dead ones were left.
    in_progress: int
    dead: int
    #: Whether an earlier call had moved all.
    before: bool


def look(file: File, queue: Queue, *, in_progress: bool = False) -> Moved:
    """Return what an import would do, and change nothing; arguments and errors as ``move``."""
    content, _ = file.read()
    state = read_state(content)
    if state.mark is not None:
        _same(state.mark, queue)
    else:
        _check(state.jobs, queue, in_progress)
    return _moved(state, len(state.jobs), 0, before=state.done)


def move(file: File, queue: Queue, *, in_progress: bool = False) -> Moved:
    """Move the jobs of a file into a queue."""
    for _ in range(TRIES):
        content, version = file.read()
        state = read_state(content)
        if state.mark is not None:
            _same(state.mark, queue)
            mark = state.mark
            break
        _check(state.jobs, queue, in_progress)
        mark = Mark(str(uuid4()), _database(queue), queue.project, queue.name)
        if file.write(state.marked(mark), version):
            break
    else:
        raise StorageError(f"Others write the file all the time ({TRIES} tries): stop them and begin again.")
    if state.done:
        return _moved(state, 0, 0, before=True)
    added, known = _add(state.jobs, queue, mark)
    _finish(file, mark)
    return _moved(state, added, known)


def _add(jobs: Sequence[Job], queue: Queue, mark: Mark) -> tuple[int, int]:
    """Add the jobs of a hand-over unless that was done; return how many were added and how many were there."""
    with storage_errors(), transaction.atomic(using=queue.using):
        if not run(_lock(mark), queue.using):
            raise StorageError("Another call moves the jobs of this file at this moment: wait for its end.")
        lines = OperatorAction.objects.using(queue.using)
        if lines.filter(action=ACTION, project=queue.project, queue=queue.name, detail__hand_over=mark.id).exists():
            return 0, len(jobs)
        receipts = []
        for start in range(0, len(jobs), MAX_MANY):
            batch = jobs[start : start + MAX_MANY]
            receipts += queue.enqueue_many(
                NewJob(body=job.payload, key=job.id, priority=job.priority, **options_of(job.entrypoint))
                for job in batch
            )
        added = [receipt.seq for receipt in receipts if receipt.status == "queued"]
        counts = {"added": len(added), "known": len(jobs) - len(added)}
        about: dict[str, Any] = {"project": queue.project, "queue": queue.name, "detail": {"hand_over": mark.id}}
        audit.write(ACTION, audit.shell(), **about, seqs=added, counts=counts, using=queue.using)
        return counts["added"], counts["known"]


@operation
def _lock(mark: Mark) -> Steps[bool]:
    """Take the lock of a hand-over until the end of the transaction; return whether it was free."""
    number = crc32(mark.id.encode()) - 2**31
    ((free, _),) = yield "try_transaction_lock", {"space": LOCKS, "number": number, "lock_timeout": 0}
    return bool(free)


def _finish(file: File, mark: Mark) -> None:
    for _ in range(TRIES):
        content, version = file.read()
        state = read_state(content)
        if state.done or file.write(state.marked(mark, done=True), version):
            return
    raise StorageError("The jobs were moved, but the file could not be marked as done: run the command again.")


def _check(jobs: Sequence[Job], queue: Queue, in_progress: bool) -> None:
    """Refuse what could not be kept as it is, before anything is changed."""
    limit = payload_limit()
    kept = run(kept_priorities(queue), queue.using)
    for job in jobs:
        check_text(job.id, "the id of a job", MAX_KEY_BYTES)
        tag_of(job.entrypoint)
        if job.priority not in kept:
            raise InvalidOption(
                f"The queue would not keep the priority {job.priority} of job {job.id}: priorities must be from"
                f" {kept[0]} to {kept[-1]}, the queue's priority_order 'asc'. Change it in the file."
            )
        if len(job.payload) > limit:
            raise PayloadTooLarge(
                f"The payload of job {job.id} has more than {limit} bytes. Raise LEASEQUEUE['MAX_PAYLOAD_BYTES']."
            )
    now = clock.now()
    held = [job for job in jobs if job.heartbeat_at is not None and now - job.heartbeat_at < STALE]
    held = [job for job in held if job.status is JobStatus.IN_PROGRESS]
    if held and not in_progress:
        raise InvalidOption(
            f"{len(held)} jobs are in progress: workers told of them within the last five minutes. Stop the workers and"
            " let them finish, or give --in-progress: these jobs are then run once more."
        )


def _same(mark: Mark, queue: Queue) -> None:
    here = (_database(queue), queue.project, queue.name)
    if mark[1:] != here:
        raise InvalidOption(
            f"The jobs of this file go to the queue {mark.queue!r} of project {mark.project!r} in the database"
            f" {mark.database!r} since an earlier call: name that one."
        )


def _database(queue: Queue) -> str:
    return str(connections[queue.using].settings_dict["NAME"])


def _moved(state: FileState, added: int, known: int, *, before: bool = False) -> Moved:
    running = sum(job.status is JobStatus.IN_PROGRESS for job in state.jobs)
    return Moved(len(state.jobs), added, known, running, state.dead, before)


# Files and objects: read and written whole, a write only if the content has not changed


class File(Protocol):
    """A file with conditional writes."""

    def read(self) -> tuple[bytes, Any]:
        """Return the content, and what names this version of it."""

    def write(self, content: bytes, version: Any) -> bool:
        """Replace the content if it is still of this version; return whether it was."""


def open_file(url: str) -> File:
    """Return the file that a URL names: a path, ``file://``, ``s3://`` or ``gs://``."""
    parts = urlsplit(url)
    if parts.scheme in ("s3", "gs"):
        if not parts.netloc or not parts.path.strip("/"):
            raise InvalidOption(f"{url!r} must name a bucket and an object: {parts.scheme}://bucket/path/of/the.json.")
        return ObjectFile(f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/"))
    if parts.scheme == "file":
        return LocalFile(Path(unquote(parts.path)))
    if "://" in url:
        raise InvalidOption(f"{url!r} must be a path, or begin with file://, s3:// or gs://.")
    return LocalFile(Path(url))


class LocalFile:
    """A file of this machine, under the lock that jqueue takes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[bytes, Any]:
        try:
            with self._path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                content = file.read()
        except OSError as error:
            raise StorageError(f"{self._path} cannot be read: {error}", error) from error
        return content, content  # which is its own version

    def write(self, content: bytes, version: Any) -> bool:
        # The common beginning stays: a process that is killed meanwhile leaves that, and a part of what is new.
        try:
            with self._path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                found = file.read()
                if found != version:
                    return False
                differ = (at for at, (old, new) in enumerate(zip(found, content, strict=False)) if old != new)
                kept = len(found) if content.startswith(found) else next(differ, len(content))
                file.truncate(kept)
                file.seek(kept)
                file.write(content[kept:])
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error}", error) from error
        return True


class ObjectFile:
    """An object of S3 or Google Cloud Storage. Credentials and endpoints come from the environment."""

    def __init__(self, bucket: str, path: str) -> None:
        try:
            import obstore
            from obstore import exceptions
            from obstore.store import from_url
        except ImportError as error:
            install = 'pip install "django-leasequeue[objects]"'
            raise InvalidOption(f"Objects need the package obstore: {install}.") from error
        self._obstore, self._refused, self._failed = obstore, exceptions.PreconditionError, exceptions.BaseError
        self._name, self._path = f"{bucket}/{path}", path
        try:
            self._store = from_url(bucket)
        except self._failed as error:
            raise InvalidOption(f"{bucket} cannot be used: {error}") from error

    def read(self) -> tuple[bytes, Any]:
        try:
            found = self._obstore.get(self._store, self._path)
            version = {name: found.meta[name] for name in ("e_tag", "version") if found.meta[name] is not None}
            return bytes(found.bytes()), version
        except (OSError, self._failed) as error:
            raise self._error("read", error) from error

    def write(self, content: bytes, version: Any) -> bool:
        try:
            self._obstore.put(self._store, self._path, content, mode=version, use_multipart=False)
        except self._refused:
            return False
        except (OSError, self._failed) as error:
            raise self._error("written", error) from error
        return True

    def _error(self, done: str, error: Exception) -> StorageError:
        says = next(iter(str(error).splitlines()), "")  # the rest is for the makers of the client
        return StorageError(f"{self._name} cannot be {done}: {says}", error)


_FIRST, _SECOND = "handing_over", "handed_over"


class Mark(NamedTuple):
    """The destination of a file's jobs: the number of the hand-over, and the queue."""

    id: str
    database: str
    project: str
    queue: str


@dataclass(frozen=True, slots=True)
class FileState:
    """The content of a file: its jobs in the order of processing; the mark, if there is one; whether that is done."""

    #: Without the dead ones.
    jobs: Sequence[Job]
    dead: int
    mark: Mark | None
    done: bool
    #: The file's own text, without marks.
    text: str

    def marked(self, mark: Mark, *, done: bool = False) -> bytes:
        """Return the file's content with a mark, and with the second one as well when the jobs are there."""
        lines = [self.text, json.dumps({_FIRST: mark._asdict()})]
        if done:
            lines.append(json.dumps({_SECOND: mark.id}))
        return "".join(f"{line}\n" for line in lines).encode()


def read_state(content: bytes) -> FileState:
    """Return what is in a file."""
    try:
        text = content.decode()
        state, end = json.JSONDecoder().raw_decode(text, len(text) - len(text.lstrip()))
        jobs = [_job(job) for job in state["jobs"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidOption(f"The file is not the state of a jqueue: {type(error).__name__}: {error}.") from error
    mark, done = None, False
    for line in text[end:].splitlines():
        said = _line(line)
        if _FIRST in said:
            mark = Mark(**said[_FIRST])
        done = done or (mark is not None and said.get(_SECOND) == mark.id)
    live = [job for job in jobs if job.status is not JobStatus.DEAD]
    live.sort(key=lambda job: (job.priority, job.created_at))
    return FileState(live, len(jobs) - len(live), mark, done, text[:end])


def _line(line: str) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _job(given: dict[str, Any]) -> Job:
    beat, priority = given.get("heartbeat_at"), given["priority"]
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise ValueError(f"a priority must be an integer; it is {priority!r}")
    return Job(
        str(given["id"]),
        str(given["entrypoint"]),
        base64.b64decode(given["payload"]),
        JobStatus(given["status"]),
        priority,
        _time(given["created_at"]),
        None if beat is None else _time(beat),
    )


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.utcoffset() is None:
        raise ValueError(f"a time must say its zone; it is {text!r}")
    return time
