"""Finding jobs over all queues and states, finished ones included.

No index answers such a filter: jobs are looked at one after the other, the newest first, a bounded number at a time. An
answer says how far it has looked, and the next one goes on there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from ..engine import arrays
from ..engine.dead.filter import DeadFilter, from_values
from ..engine.limits import MAX_SEQ
from ..engine.operation import Steps, operation
from ..enums import JobState, ResultState
from ..exceptions import InvalidOption
from .reading import state_label

#: Jobs that one page looks at, how many at a time, and the seconds after which it stops.
MAX_LOOKED, CHUNK, PATIENCE = 50_000, 1_000, 0.2
#: Time by which a job may have been made earlier than one with a lower number: its transaction was long.
_SLACK = timedelta(minutes=10)
#: States by the words of an address; of results + 10.
STATES = {state.label: int(state) for state in JobState} | {state.label: int(state) + 10 for state in ResultState}
_FIELDS = ("task", "since", "until", "text", "payload")


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter of jobs; ``None`` (or empty) means any. ``queue`` is an id, ``rest`` holds all but the state."""

    rest: DeadFilter
    queue: int | None = None
    state: str | None = None

    @property
    def empty(self) -> bool:
        """Whether it asks for nothing beyond a queue and a state."""
        return self.rest.empty

    def query(self, **more: Any) -> str:
        """Return the filter as a query string, with more names behind it."""
        pairs = {"queue": self.queue or "", "state": self.state or "any", **more}
        return "&".join(part for part in (self.rest.query(), urlencode(pairs)) if part)


class JobHit(NamedTuple):
    """A job that a filter wants. ``ended_at``: when it was finished, or died."""

    seq: int
    state_number: int
    project: str
    queue: str
    queue_id: int
    key: str | None
    name: str | None
    created_at: datetime
    ended_at: datetime | None
    error_type: str | None
    error: str | None

    @property
    def state(self) -> str:
        """Its state in a word."""
        return state_label(self.state_number)


class JobHits(NamedTuple):
    """The jobs that a look found, how many it looked at, back to when, and the start of the next (``None``: end)."""

    jobs: list[JobHit]
    looked_at: int
    oldest: datetime | None
    next: int | None


def from_request(values: Mapping[str, list[str]], queue: int | None) -> JobFilter:
    """Return the filter that the lists of values of an address say.

    Raises:
        InvalidOption: a value is not allowed; the message says which are.
    """
    rest = from_values({name: values[name] for name in _FIELDS if name in values})
    state = (values.get("state") or [""])[-1] or "any"
    if state != "any" and state not in STATES:
        raise InvalidOption(f"a state is one of any, {', '.join(STATES)}; it is {state[:40]!r}.")
    return JobFilter(rest, queue, None if state == "any" else state)


@operation
def find(wanted: JobFilter, *, below: int | None = None, size: int = 50) -> Steps[JobHits]:
    """Look for jobs, the newest first.

    Args:
        wanted: the filter.
        below: ``next`` of the look before.
        size: jobs that are wanted.
    """
    since, until = wanted.rest.since, wanted.rest.until
    if below is None:
        ((below,),) = [(MAX_SEQ,)] if until is None else (yield "admin/job_after", {"at": until + _SLACK})
    params = {
        **wanted.rest.matching(),
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
            return JobHits(jobs, looked + place, last.created_at, last.seq)
        looked, oldest = looked + count, first or oldest
        if count < CHUNK or (since is not None and newest < since - _SLACK):
            return JobHits(jobs, looked, oldest, None)
        below = low
        if looked >= MAX_LOOKED or time.monotonic() >= end:
            return JobHits(jobs, looked, oldest, below)
