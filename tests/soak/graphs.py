"""What workflows and unique tasks promise: nothing starts before its parents, or after its cancel; one job of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .evidence import SECOND
from .incidents import Incidents
from .ledgers import seconds
from .promises import EARLY, RECALLED, TWICE_QUEUED, Broken
from .runs import CLOCKS, Job, Run, said

#: Until the cancel of a workflow is heard everywhere; and how long a fault is felt by those who listen.
HEARING, ECHO = SECOND, 3 * SECOND

#: Modes of jobs that are dead after a delivery or two.
FRAIL = frozenset({"doomed", "forever"})

Lookup = Callable[[int], Job | None]


class Parents(NamedTuple):
    """What a job comes after; ``tolerant``: however they ended."""

    numbers: list[int]
    tolerant: bool


@dataclass(slots=True)
class Holder:
    """A job that was made under a unique key, and when that was answered."""

    number: int
    at: int


class Graphs:
    """Holds what producers say of workflows and of keys against the starts."""

    def __init__(self, incidents: Incidents, lookup: Lookup) -> None:
        self._incidents = incidents
        self._lookup = lookup
        self._parents: dict[int, Parents] = {}
        self._recalled: dict[int, int] = {}
        self._holders: dict[str, Holder] = {}
        self._made: list[tuple[int, int, str]] = []

    def after(self, number: int, parents: list[int], tolerant: bool) -> None:
        """Note that a job comes after others."""
        self._parents[number] = Parents(parents, tolerant)

    def recalled(self, at: int, numbers: list[int]) -> None:
        """Note that jobs were taken out for sure."""
        self._recalled.update(dict.fromkeys(numbers, at))

    def unique(self, at: int, number: int, key: str) -> None:
        """Note that a job was made under a key that holds until its end."""
        self._made.append((at, number, key))

    def started(self, number: int, run: Run) -> Iterator[Broken]:
        """Judge a start. They come in the order of time, and all that happened before is known."""
        gone = self._recalled.get(number)
        job = self._lookup(number)
        unsure = job is not None and self._incidents.may_be_lost(job.recalled, gone or 0)
        if gone is not None and run.claimed > gone + CLOCKS and not unsure:
            fault = self._incidents.explain(gone, run.start)
            yield Broken(RECALLED, run.start, fault, f"job {number} was taken out, claimed later, and {said(run)}")
        # Where its worker, or the server, was in the hands of a fault it may have heard later.
        elif (
            gone is not None and run.start > gone + HEARING and not self._incidents.met(run.who, gone - ECHO, run.start)
        ):
            late = f"{seconds(gone, run.start)} after that {said(run)}"
            yield Broken(RECALLED, run.start, "", f"job {number} was taken out with its workflow; {late}")
        parents = self._parents.get(number)
        for parent in parents.numbers if parents is not None else ():
            before = self._lookup(parent)
            if before is None or not self._ended(before, run.start, parents is not None and parents.tolerant):
                fault = self._incidents.explain(before.tried if before else run.start, run.start, run.who)
                yield Broken(EARLY, run.start, fault, f"job {number} comes after job {parent}, and {said(run)}")

    def _ended(self, job: Job, at: int, tolerant: bool) -> bool:
        if job.over or any(run.how == "done" and (run.end or at) < at + CLOCKS for run in job.runs):
            return True
        # Its only lease may end before its start with a worker that a fault met: then it is dead without a run.
        if tolerant and job.mode in FRAIL and all(run.start >= at for run in job.runs):
            return bool(self._incidents.explain(job.tried, at))
        return tolerant and any(
            (run.end is not None and run.end < at + CLOCKS) or self._incidents.ended_before(run.who, at)
            for run in job.runs
        )

    def judge(self, known: int) -> Iterator[Broken]:
        """Judge unique tasks that were made up to a time of which all is known."""
        due = sorted(made for made in self._made if made[0] <= known)
        self._made = [made for made in self._made if made[0] > known]
        for at, number, key in due:
            holder = self._holders.get(key)
            self._holders[key] = Holder(number, at)
            # Which of two that were made at nearly the same time was the first is not known.
            if holder is None or self._had_ended(holder.number, at) or self._had_ended(number, holder.at):
                continue
            text = f"the key {key} has job {number}, and had job {holder.number}, which had not ended"
            yield Broken(TWICE_QUEUED, at, self._incidents.explain(holder.at, at), text)

    def _had_ended(self, number: int, at: int) -> bool:
        job = self._lookup(number)
        return job is not None and (job.doubtful or self._ended(job, at, tolerant=False))
