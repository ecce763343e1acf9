"""State files of jqueue, local ones and objects: read and written whole, a write only if the file has not changed.

A mark is a line of JSON behind the state. jqueue refuses a file with one, so no more jobs are added to it, and what
was in it stays there. The first mark says where the jobs go, the second that they are there.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from ..exceptions import InvalidOption, StorageError
from .jqueue_values import Job, JobStatus

#: Services of object storage, by the scheme of a URL.
SERVICES = ("s3", "gs")


class File(Protocol):
    """A file with conditional writes."""

    def read(self) -> tuple[bytes, Any]:
        """Return the content, and what names this version of it."""

    def write(self, content: bytes, version: Any) -> bool:
        """Replace the content if it is still of this version; return whether it was."""


def open_file(url: str) -> File:
    """Return the file that a URL names: a path, ``file://``, ``s3://`` or ``gs://``."""
    parts = urlsplit(url)
    if parts.scheme in SERVICES:
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
        """Return the content, which is its own version."""
        try:
            with self._path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                content = file.read()
        except OSError as error:
            raise StorageError(f"{self._path} cannot be read: {error}", error) from error
        return content, content

    def write(self, content: bytes, version: Any) -> bool:
        """Replace the content if it is still ``version``; return whether it was.

        The common beginning stays: a process that is killed meanwhile leaves that, and a part of what is new.
        """
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

    jobs: Sequence[Job]
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
    jobs.sort(key=lambda job: (job.priority, job.created_at))
    return FileState(jobs, mark, done, text[:end])


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
