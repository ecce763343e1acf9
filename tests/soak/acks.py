"""What acks promise: one is accepted from the holder alone, be it late, and the job does not come again then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from .incidents import Incidents
from .promises import ACCEPTED, FORGED, Broken
from .runs import CLOCKS, Job, Run, said

#: Its outcome was not heard.
DOUBT = "doubt"


class Ack(NamedTuple):
    """An ack that was accepted: whose, and when it was asked and answered."""

    claim: int
    claimed: int
    asked: int
    answered: int


class Acks:
    """Holds what consumers say of their acks against the starts."""

    def __init__(self, incidents: Incidents, lookup: Callable[[int], Job | None]) -> None:
        self._incidents = incidents
        self._lookup = lookup
        self._accepted: dict[int, Ack] = {}
        self._due: list[int] = []
        self._forged: list[Broken] = []
        self.late = self.refused = 0

    def acked(self, number: int, ack: Ack, outcome: str, late: bool) -> None:
        """Note the outcome of an ack."""
        if outcome == "ok" and not self._incidents.may_be_lost(ack.asked, ack.answered):
            self._accepted[number] = ack
            self._due.append(number)
            self.late += late
        elif outcome == DOUBT and (job := self._lookup(number)) is not None:
            job.doubtful = True

    def forged(self, at: int, number: int, name: str, outcome: str) -> None:
        """Note what became of a settle call that is not the holder's."""
        self.refused += outcome != "ok"
        if outcome == "ok":
            self._forged.append(Broken(FORGED, at, self._incidents.explain(at, at), f"{name}: job {number}"))

    def started(self, number: int, run: Run) -> Iterator[Broken]:
        """Judge a start: not after an ack that was accepted."""
        ack = self._accepted.get(number)
        if ack is None or run.claim == ack.claim or run.claimed <= ack.answered + CLOCKS:
            return
        # What a server that took over did not know was asked before it did, and may be known only now.
        if not self._incidents.may_be_lost(ack.asked, ack.answered):
            text = f"job {number} was acked under claim {ack.claim}, claimed later, and {said(run)}"
            yield Broken(ACCEPTED, run.start, self._incidents.explain(ack.asked, run.start), text)

    def judge(self, known: int) -> Iterator[Broken]:
        """Judge acks up to a time of which all is known: none was accepted whose job another had by then."""
        yield from self._forged
        due = [number for number in self._due if self._accepted[number].answered <= known]
        self._due = [number for number in self._due if self._accepted[number].answered > known]
        for number in due:
            ack, job = self._accepted[number], self._lookup(number)
            for run in job.runs if job is not None else ():
                lost = self._incidents.may_be_lost(run.claimed, run.start)
                if ack.claimed < run.claimed < ack.asked - CLOCKS and run.claim != ack.claim and not lost:
                    text = f"job {number} was acked under claim {ack.claim}; before {said(run)}"
                    yield Broken(ACCEPTED, ack.answered, self._incidents.explain(run.claimed, ack.answered), text)
