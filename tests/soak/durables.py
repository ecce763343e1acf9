"""What durable jobs say of their parts, held against what was promised of steps, sleeps and events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .evidence import SECOND, TIMEOUT
from .incidents import Incidents
from .promises import EARLY_WAKE, EFFECTS, MISSED, PAID_LATE, STEP_AGAIN, STEP_LATE, UNDONE, Broken
from .runs import CLOCKS, Leases, Registry, Run

#: What an event may take to be there for those that wait, and how far times of two clocks may be apart.
SLACK = SECOND


@dataclass(slots=True)
class Place:
    """One part of a job: when it was reached first, and what it was when it was first passed."""

    comes: int
    kind: str
    seconds: float
    #: The start of the run that passed it first, when that said so, and with which value.
    started: int = 0
    passed: int = 0
    value: Any = None
    #: By which claim it was done, and when, by what it returned.
    did: dict[str, tuple[int, int]] = field(default_factory=dict)


class Durables:
    """Holds parts of durable jobs against the promises. Methods have the names of evidence."""

    def __init__(self, incidents: Incidents, leases: Leases, registry: Registry) -> None:
        self._incidents, self._leases, self._registry = incidents, leases, registry
        self._places: dict[tuple[int, int], Place] = {}
        #: When each event was tried to be emitted, and when that was answered.
        self._emitted: dict[tuple[int, int], tuple[int, int]] = {}
        self._counted: dict[tuple[int, int], int] = {}
        #: What cancelled jobs had paid when the cancel was answered, with when they were tried, and when that was.
        self._paid: dict[int, tuple[int, int, int]] = {}
        #: Jobs that undo what they have paid, with when they were tried and committed; rows that each undo removed.
        self._sagas: dict[int, tuple[int, int]] = {}
        self._repaid = Counter[tuple[int, int]]()
        self.steps = self.suspensions = self.undone = 0

    def finish(self) -> Iterator[Broken]:
        for (number, place), found in self._places.items():
            count = self._counted.get((number, place), 0)
            job = self._registry.find(number)
            owed = found.kind == "atomic" and job is not None and (job.over or (job.owed and job.done))
            if self._counted and (count > 1 or (owed and count != 1 and not self._lost(found))):
                yield self._breaks(EFFECTS, found.passed, number, place, f"left {count} rows")

        totals = Counter[int]()
        for (number, _), count in self._counted.items():
            totals[number] += count
        for number, (tried, at, paid) in self._paid.items() if self._counted else ():
            yield from self._paid_late(number, tried, at, paid, totals[number])
        for number, (tried, at) in self._sagas.items() if self._counted else ():
            most = max((count for (of, _), count in self._repaid.items() if of == number), default=0)
            if (totals[number] or most > 1) and not self._incidents.may_be_lost(tried, at):
                text = f"job {number} has {totals[number]} rows in the end, and removed {most} of one"
                yield Broken(UNDONE, at, self._incidents.explain(tried, at), text)

    def _paid_late(self, number: int, tried: int, at: int, paid: int, left: int) -> Iterator[Broken]:
        if left != paid and not self._incidents.may_be_lost(tried, at):
            fault = self._incidents.explain(tried, at)
            yield Broken(PAID_LATE, at, fault, f"job {number} had {paid} rows when it was taken out, and has {left}")

    # Evidence

    def comes(self, at: int, who: str, number: int, place: int, claim: int, kind: str, seconds: float) -> None:
        self._places.setdefault((number, place), Place(at, kind, seconds))

    def did(self, at: int, who: str, number: int, place: int, claim: int, value: str) -> Iterator[Broken]:
        found, run = self._places[number, place], self._registry.run(number, who, claim)
        found.did[value] = (claim, at)
        if found.passed and run is not None and run.start > found.passed and not self._lost(found):
            yield self._breaks(STEP_AGAIN, at, number, place, "was done again by a run that began after it had passed")

    def passed(self, at: int, who: str, number: int, place: int, claim: int, value: Any) -> Iterator[Broken]:
        found, run = self._places[number, place], self._registry.run(number, who, claim)
        if run is None:
            return
        self.steps += 1
        # What a server that is gone has answered may have come late: its worker was stopped meanwhile.
        was_lost = self._lost(found) or self._incidents.may_be_lost(run.start, at)
        if found.passed and found.value != value and not was_lost:
            yield self._breaks(STEP_AGAIN, at, number, place, f"was {found.value!r} before, and is {value!r} now")
        if not found.passed or found.value != value:
            found.started, found.passed, found.value = run.start, at, value
        mine, since = found.did.get(value, (0, 0)) if isinstance(value, str) else (0, 0)
        if mine == claim:
            yield from self._fenced(at, number, place, run, since)
        jumped = self._incidents.jumped(found.comes, at)
        if found.kind == "sleep" and not jumped and at + CLOCKS < found.comes + round(found.seconds * SECOND):
            text = f"slept {(at - found.comes) / SECOND:.2f} of {found.seconds} s"
            yield self._breaks(EARLY_WAKE, at, number, place, text)
        if found.kind == "event" and value not in ("timeout", f"{number}:{place}"):
            yield self._breaks(MISSED, at, number, place, f"got {value!r}")
        tried, sure = self._emitted.get((number, place), (0, 0))
        due = found.comes + round(TIMEOUT * SECOND)
        there = sure and sure + SLACK < due and not self._incidents.may_be_lost(tried, sure)
        if value == "timeout" and there and not jumped and not self._lost(found):
            yield self._breaks(MISSED, at, number, place, f"timed out, {(due - sure) / SECOND:.1f} s after its event")

    def suspended(self, at: int, who: str, number: int, place: int, claim: int) -> Iterator[Broken]:
        self.suspensions += 1
        found, run = self._places[number, place], self._registry.run(number, who, claim)
        if found.passed and run is not None and run.start > found.passed and not self._lost(found):
            yield self._breaks(EARLY_WAKE, at, number, place, "sleeps again though it was over")

    def emitted(self, at: int, who: str, number: int, place: int, tried: int) -> None:
        self._emitted[number, place] = (tried, at)

    def effect(self, at: int, who: str, number: int, place: int, claim: int, count: int) -> Iterator[Broken]:
        found, run = self._places[number, place], self._registry.run(number, who, claim)
        if count != 1 and run is not None and not self._incidents.may_be_lost(run.start, at) and not self._lost(found):
            yield self._breaks(EFFECTS, at, number, place, f"had {count} rows when it had passed")

    def paid(self, at: int, who: str, number: int, tried: int, count: int, later: int) -> Iterator[Broken]:
        self._paid[number] = (tried, at, count)
        yield from self._paid_late(number, tried, at, count, later)

    def saga(self, at: int, who: str, number: int, tried: int) -> None:
        self._sagas[number] = (tried, at)

    def repaid(self, at: int, who: str, number: int, place: int, rows: int) -> None:
        self.undone += rows
        self._repaid[number, place] = max(self._repaid[number, place], rows)

    def effects(self, at: int, who: str, rows: list[tuple[int, int, int]]) -> None:
        self._counted.update({(number, place): count for number, place, count in rows})

    # What these are made of

    def _fenced(self, at: int, number: int, place: int, run: Run, did: int) -> Iterator[Broken]:
        """Judge a run that kept a step of its own: nobody may have claimed the job before it did the step."""
        job = self._registry.find(number)
        for other in job.runs if job else ():
            later = other.claim != run.claim and run.claimed < other.claimed < did - SLACK // 4
            if later and not self._leases.forgotten(run, at) and not self._incidents.may_be_lost(other.claimed, at):
                text = f"was kept under claim {run.claim}, though claim {other.claim} had come after it"
                yield self._breaks(STEP_LATE, at, number, place, text)

    def _lost(self, found: Place) -> bool:
        return bool(found.passed) and self._incidents.may_be_lost(found.started, found.passed)

    def _breaks(self, promise: str, at: int, number: int, place: int, text: str) -> Broken:
        found = self._places[number, place]
        fault = self._incidents.explain(found.comes, at)
        return Broken(promise, at, fault, f"{found.kind} {place} of job {number} {text}")
