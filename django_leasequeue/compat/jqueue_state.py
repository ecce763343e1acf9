"""The state that jqueue keeps in one JSON file, and the marks that say that its jobs were handed over.

A mark is a line of JSON behind the state. jqueue refuses a file with one, so nobody adds jobs to it any more, and what
was in it stays there. The first mark says where the jobs go, the second that they are there.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from ..exceptions import InvalidOption
from .jqueue_values import Job, JobStatus

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
    """Return what is in a file.

    Args:
        content: of the file. What a broken write left of a mark does not count.

    Raises:
        InvalidOption: it is not a state of jqueue.
    """
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
    beat = given.get("heartbeat_at")
    priority = given["priority"]
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
