"""Finding jobs over all queues and states, finished ones included.

No index answers such a filter: the search reads jobs one after the other, the newest first, a bounded number per
request. An answer says how far it has read; ``search.js`` asks for the next one until a page is full.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models.functions import Left

from ..engine import arrays, codec
from ..engine.dead.filter import DeadFilter, from_values
from ..engine.dead.redaction import readable, redact
from ..engine.limits import MAX_SEQ
from ..engine.operation import Steps, operation
from ..enums import JobState, ResultState
from ..exceptions import InvalidOption
from ..models import StoredJob
from ..models.base import AsWritten
from ..tasks.arguments import shown
from .reading import alias, state_label

#: Jobs that one page looks at, how many at a time, and the seconds after which it stops.
MAX_LOOKED, CHUNK, PATIENCE = 50_000, 1_000, 0.4
#: Bytes of a job's data up to which a list shows the arguments, and characters that it shows.
_MAX_DATA, _MAX_SHOWN = 4_000, 120
#: Time by which a job may have been made earlier than one with a lower number: its transaction was long.
_SLACK = timedelta(minutes=10)
#: States by the words of an address; of results + 10.
STATES = {state.label: int(state) for state in JobState} | {state.label: int(state) + 10 for state in ResultState}
_FIELDS = ("task", "since", "until", "text", "payload")


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter of jobs; ``None`` (or empty) means any. ``queue`` is an id, ``rest`` holds all but the state.

    ``payloads``: whether ``text`` is also looked for in data and meta.
    """

    rest: DeadFilter
    queue: int | None = None
    state: str | None = None
    payloads: bool = False

    @property
    def empty(self) -> bool:
        """Whether it asks for nothing beyond a queue and a state."""
        return self.rest.empty

    def query(self, **more: Any) -> str:
        """Return the filter as a query string, with more names behind it."""
        pairs = {"queue": self.queue or "", "state": self.state or "any", **more}
        return "&".join(part for part in (self.rest.query(), urlencode(pairs)) if part)


class JobHit(NamedTuple):
    """A job that a filter wants. ``finished_at``: when it was finished, or died."""

    seq: int
    state_number: int
    project: str
    queue: str
    queue_id: int
    key: str | None
    task: str | None
    enqueued_at: datetime
    finished_at: datetime | None
    error_type: str | None
    error: str | None

    @property
    def state(self) -> str:
        return state_label(self.state_number)


class JobHits(NamedTuple):
    """The jobs that a look found, how many it looked at, back to when, and the start of the next (``None``: end)."""

    jobs: list[JobHit]
    looked_at: int
    oldest: datetime | None
    next: int | None


def from_request(values: Mapping[str, list[str]], queue: int | None, *, payloads: bool) -> JobFilter:
    """Return the filter that an address's values make; raise ``InvalidOption`` where one is not allowed."""
    rest = from_values({name: values[name] for name in _FIELDS if name in values})
    state = (values.get("state") or [""])[-1] or "any"
    if state != "any" and state not in STATES:
        raise InvalidOption(f"a state is one of any, {', '.join(STATES)}; it is {state[:40]!r}.")
    return JobFilter(rest, queue, None if state == "any" else state, payloads)


def arguments(jobs: Iterable[tuple[int, str, str | None]], *, values: bool) -> dict[int, str]:
    """Return the data (of a task the arguments) of jobs (number, queue, task) as one line each, with secrets hidden."""
    names = {seq: (queue, task) for seq, queue, task in jobs}
    found = StoredJob.objects.using(alias()).filter(pk__in=names)
    texts = found.annotate(text=Left(AsWritten("data"), _MAX_DATA + 1)).values_list("pk", "text")
    lines = {}
    for seq, text in texts:
        if text and len(text) <= _MAX_DATA:
            queue, task = names[seq]
            line = _line(redact(readable(text), kind="data", queue=queue, task=task, values=values))
            lines[seq] = line if len(line) <= _MAX_SHOWN else f"{line[:_MAX_SHOWN]}…"
        elif text:
            lines[seq] = "…"
    return lines


def _line(data: Any) -> str:
    if not (isinstance(data, dict) and isinstance(data.get("args"), list) and isinstance(data.get("kwargs"), dict)):
        return codec.dumps(data)
    args, kwargs = shown(data["args"]), shown(data["kwargs"])
    return ", ".join([*map(codec.dumps, args), *(f"{k}={codec.dumps(v)}" for k, v in kwargs.items())])


def _called(text: str | None) -> str | None:
    """Return ``customer=17``, as a list shows an argument, as JSON without spaces; ``None`` where a text is no such."""
    found = re.fullmatch(r"(\w+)\s*=\s*(.+)", text or "")
    if found is None:
        return None
    try:
        value = codec.loads(found[2])
    except ValueError:
        value = found[2]
    called = f"{codec.dumps(found[1])}:{codec.dumps(value)}"
    return called.replace(" ", "").replace("}", ",").lower()


@operation
def find(wanted: JobFilter, *, below: int | None = None, size: int = 50) -> Steps[JobHits]:
    """Search for jobs, the newest first; ``below`` is ``next`` of the search before."""
    since, until = wanted.rest.since, wanted.rest.until
    if below is None:
        ((below,),) = [(MAX_SEQ,)] if until is None else (yield "admin/job_after", {"at": until + _SLACK})
    params = {
        **wanted.rest.matching(),
        "payloads": wanted.payloads,
        "called": _called(wanted.rest.text),
        "queue": wanted.queue,
        "states": None if wanted.state is None else arrays.integers([STATES[wanted.state]]),
        "since": since,
        "until": until,
    }
    end = time.monotonic() + PATIENCE
    jobs: list[JobHit] = []
    looked, oldest = 0, None
    while True:
        enough = size - len(jobs)
        rows = yield "admin/walk_jobs", {**params, "below": below, "size": CHUNK, "enough": enough}
        count, low, first, newest = rows[0][:4]
        found = [(place, JobHit._make(job)) for _, _, _, _, place, *job in rows if place is not None]
        jobs += [job for _, job in found]
        if len(found) == enough:
            place, last = found[-1]
            return JobHits(jobs, looked + place, last.enqueued_at, last.seq)
        looked, oldest = looked + count, first or oldest
        if count < CHUNK or (since is not None and newest < since - _SLACK):
            return JobHits(jobs, looked, oldest, None)
        below = low
        if looked >= MAX_LOOKED or time.monotonic() >= end:
            return JobHits(jobs, looked, oldest, below)
