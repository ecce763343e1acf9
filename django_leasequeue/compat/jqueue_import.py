"""The import of a jqueue state file, local or an object, into a queue: each job moves exactly once.

1. A conditional write marks the file: from then on jqueue refuses it, and its jobs no longer change.
2. One transaction adds the jobs, and a line of the audit with the id of the hand-over.
3. A second mark says that it is done.

After a crash in between, run it again: a marked file keeps its mark, and a hand-over in the audit adds nothing. A mark
is a line of JSON behind the state: the first names the queue, the second says that the jobs are there.
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
from ..engine.operation import Statements, operation
from ..exceptions import InvalidOption, PayloadTooLarge, StorageError
from ..models import OperatorAction
from ..queue.base import run, storage_errors
from ..queue.enqueue import MAX_MANY
from ..queue.queue import Queue
from .jqueue import kept_priorities
from .jqueue_values import Job, JobStatus, options_of, payload_limit, tag_of

ACTION = "import"
#: How often another process may write the file while it is marked.
TRIES = 20
#: A worker without a heartbeat for so long is gone.
STALE = timedelta(minutes=5)


class Moved(NamedTuple):
    """The outcome of an import."""

    #: Jobs of the file, without dead ones.
    jobs: int
    #: Jobs that this call has added, and that the queue had already.
    added: int
    known: int
    #: Jobs in progress, and dead ones, which stay in the file.
    in_progress: int
    dead: int
    #: Whether an earlier call has moved all.
    before: bool


def preview(file: File, queue: Queue, *, in_progress: bool = False) -> Moved:
    """Return the outcome of an import, without any change; arguments and errors as for ``move``."""
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
        raise StorageError(f"Other processes keep writing the file ({TRIES} tries): stop them and run this again.")
    if state.done:
        return _moved(state, 0, 0, before=True)
    added, known = _add(state.jobs, queue, mark)
    _finish(file, mark)
    return _moved(state, added, known)


def _add(jobs: Sequence[Job], queue: Queue, mark: Mark) -> tuple[int, int]:
    """Add the jobs of a hand-over unless the audit has it; return how many were added and how many there were."""
    with storage_errors(), transaction.atomic(using=queue.using):
        if not run(_lock(mark), queue.using):
            raise StorageError("Another process is moving the jobs of this file: wait for its end.")
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
def _lock(mark: Mark) -> Statements[bool]:
    """Take the lock of a hand-over for the transaction; return whether it was free."""
    number = crc32(mark.id.encode()) - 2**31
    ((free,),) = yield "import_lock", {"number": number}
    return bool(free)


def _finish(file: File, mark: Mark) -> None:
    for _ in range(TRIES):
        content, version = file.read()
        state = read_state(content)
        if state.done or file.write(state.marked(mark, done=True), version):
            return
    raise StorageError("The jobs were moved, but the file could not be marked as done: run the command again.")


def _check(jobs: Sequence[Job], queue: Queue, in_progress: bool) -> None:
    """Refuse jobs that the queue would change, before any write."""
    limit = payload_limit()
    kept = run(kept_priorities(queue), queue.using)
    for job in jobs:
        check_text(job.id, "the id of a job", MAX_KEY_BYTES)
        tag_of(job.entrypoint)
        if job.priority not in kept:
            raise InvalidOption(
                f"The priority of a job must be from {kept[0]} to {kept[-1]}, with priority_order 'asc'; job {job.id}"
                f" has {job.priority}. Change it in the file."
            )
        if len(job.payload) > limit:
            raise PayloadTooLarge(
                f"The payload of job {job.id} has more than {limit} bytes. Raise LEASEQUEUE['MAX_PAYLOAD_BYTES']."
            )
    now, running = clock.now(), [job for job in jobs if job.status is JobStatus.IN_PROGRESS]
    held = [job for job in running if job.heartbeat_at is not None and now - job.heartbeat_at < STALE]
    if held and not in_progress:
        raise InvalidOption(
            f"{len(held)} jobs are in progress: they had a heartbeat within the last five minutes. Stop the workers and"
            " let them finish, or give --in-progress: these jobs then run once more."
        )


def _same(mark: Mark, queue: Queue) -> None:
    if mark[1:] != (_database(queue), queue.project, queue.name):
        raise InvalidOption(
            f"An earlier call has begun to move this file to the queue {mark.queue!r} of project {mark.project!r} in"
            f" the database {mark.database!r}: name that queue."
        )


def _database(queue: Queue) -> str:
    return str(connections[queue.using].settings_dict["NAME"])


def _moved(state: FileState, added: int, known: int, *, before: bool = False) -> Moved:
    running = sum(job.status is JobStatus.IN_PROGRESS for job in state.jobs)
    return Moved(len(state.jobs), added, known, running, state.dead, before)


# Files and objects, with conditional writes


class File(Protocol):
    """A file with conditional writes."""

    def read(self) -> tuple[bytes, Any]:
        """Return the content and its version."""

    def write(self, content: bytes, version: Any) -> bool:
        """Replace the content if it still has this version; return whether it had."""


def open_file(url: str) -> File:
    """Return the file of a URL: a path, ``file://``, ``s3://`` or ``gs://``."""
    parts = urlsplit(url)
    if parts.scheme in ("s3", "gs"):
        if not parts.netloc or not parts.path.strip("/"):
            raise InvalidOption(f"url must name a bucket and an object: {parts.scheme}://bucket/path; it is {url!r}.")
        return ObjectFile(f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/"))
    if parts.scheme == "file":
        return LocalFile(Path(unquote(parts.path)))
    if "://" in url:
        raise InvalidOption(f"url must be a path, or begin with file://, s3:// or gs://; it is {url!r}.")
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
        return content, content  # the content is its own version

    def write(self, content: bytes, version: Any) -> bool:
        # Keep the common beginning: after a kill, the file has it and a part of the new lines.
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
            raise InvalidOption('Objects need obstore: pip install "django-leasequeue[objects]".') from error
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
        says = next(iter(str(error).splitlines()), "")  # the rest is detail of the client library
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
    """The content of a file: its jobs in the order of processing, its mark, and whether the hand-over is done."""

    #: Without the dead ones.
    jobs: Sequence[Job]
    dead: int
    mark: Mark | None
    done: bool
    #: The file's own text, without marks.
    text: str

    def marked(self, mark: Mark, *, done: bool = False) -> bytes:
        """Return the file's content with a mark, and when ``done`` with the second one."""
        lines = [self.text, json.dumps({_FIRST: mark._asdict()})]
        if done:
            lines.append(json.dumps({_SECOND: mark.id}))
        return "".join(f"{line}\n" for line in lines).encode()


def read_state(content: bytes) -> FileState:
    """Parse the content of a file."""
    try:
        text = content.decode()
        state, end = json.JSONDecoder().raw_decode(text, len(text) - len(text.lstrip()))
        jobs = [_job(job) for job in state["jobs"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidOption(f"The file is not the state of a jqueue: {type(error).__name__}: {error}.") from error
    mark, done = None, False
    for line in text[end:].splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            mark = Mark(**entry[_FIRST]) if _FIRST in entry else mark
            done = done or (mark is not None and entry.get(_SECOND) == mark.id)
    live = [job for job in jobs if job.status is not JobStatus.DEAD]
    live.sort(key=lambda job: (job.priority, job.created_at))
    return FileState(live, len(jobs) - len(live), mark, done, text[:end])


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
        raise ValueError(f"a time must have a time zone; it is {text!r}")
    return time
