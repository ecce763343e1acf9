"""What is said of limits, workflows and unique tasks, and when it is judged: once all before is known."""

from __future__ import annotations

from collections.abc import Iterator

from .acks import Ack, Acks
from .evidence import SECOND
from .graphs import Graphs
from .incidents import Incidents
from .limits import Limits
from .promises import INPUT, PAUSED, Broken
from .registry import Registry
from .runs import Leases, Run, said

#: The longest that a claim which began before its queue was paused goes on.
SETTLING = SECOND // 4
FOR_EVER = 1 << 62


class Flows:
    """Holds what producers say of limits, workflows and keys against the starts. Methods have the names of evidence."""

    def __init__(self, incidents: Incidents, leases: Leases, registry: Registry) -> None:
        self._incidents = incidents
        self._registry = registry
        self._limits = Limits(incidents, leases, registry.find)
        self._graphs = Graphs(incidents, registry.find)
        self.acks = Acks(incidents, registry.find)
        #: Starts that were not judged yet.
        self._starts: list[tuple[int, int, Run]] = []
        self._wrong: list[Broken] = []
        #: When each queue was paused, and when it was resumed.
        self._pauses: dict[str, list[tuple[int, int]]] = {}
        #: Workflows that were committed, dead letters that were tried again, cancels of jobs and of workflows.
        self.workflows = self.tried_again = self.cancels = 0

    @property
    def limited(self) -> int:
        """How many jobs were tried to be enqueued under a limit."""
        return self._limits.jobs

    # Evidence

    def under(self, at: int, who: str, jobs: list[tuple[int, str, int, bool]]) -> None:
        for number, key, most, ordered in jobs:
            self._limits.under(number, key, most, ordered)

    def paced(self, at: int, who: str, numbers: list[int], rate: int, per: int) -> None:
        self._limits.paced(at, numbers, rate, per)

    def after(self, at: int, who: str, edges: list[tuple[int, list[int], bool]]) -> None:
        for number, parents, tolerant in edges:
            self._graphs.after(number, parents, tolerant)

    def workflow(self, at: int, who: str, numbers: list[int]) -> None:
        self.workflows += 1

    def unique(self, at: int, who: str, number: int, key: str) -> None:
        self._graphs.unique(at, number, key)

    def recall(self, at: int, who: str, numbers: list[int]) -> None:
        for number in numbers:
            self._registry.recall(number, at)

    def recalled(self, at: int, who: str, numbers: list[int]) -> None:
        self.cancels += 1
        self._graphs.recalled(at, numbers)

    def stays(self, at: int, who: str, numbers: list[int]) -> None:
        for number in numbers:
            self._registry.recall(number, 0)

    def healed(self, at: int, who: str, numbers: list[int]) -> None:
        self.tried_again += len(numbers)

    def took(self, at: int, who: str, number: int, right: bool) -> None:
        if not right:
            text = f"job {number} got other values than those before it returned"
            self._wrong.append(Broken(INPUT, at, self._incidents.explain(at, at, who), text))

    def paused(self, queue: str, at: int) -> None:
        """Note that a queue is paused."""
        self._pauses.setdefault(queue, []).append((at, FOR_EVER))

    def resumed(self, queue: str, at: int) -> None:
        """Note that it is about to be resumed."""
        self._pauses[queue][-1] = (self._pauses[queue][-1][0], at)

    def acked(self, at: int, who: str, number: int, claim: int, claimed: int, asked: int, outcome: str) -> None:
        run = self._registry.run(number, who, claim, at)
        self.acks.acked(number, Ack(claim, claimed, asked, at), outcome, run is not None and asked > run.deadline)
        if (job := self._registry.jobs.get(number)) is not None:
            self._registry.note(number, job)

    def forged(self, at: int, who: str, number: int, name: str, outcome: str) -> None:
        self.acks.forged(at, number, name, outcome)

    def started(self, number: int, run: Run) -> None:
        """Note a start."""
        self._starts.append((run.start, number, run))

    # The verdict

    def judge(self, known: int) -> Iterator[Broken]:
        """Judge what happened up to a time of which all is known."""
        due = sorted((start for start in self._starts if start[0] <= known), key=lambda start: start[0])
        self._starts = [start for start in self._starts if start[0] > known]
        for _, number, run in due:
            yield from self._limits.started(number, run)
            yield from self._graphs.started(number, run)
            yield from self.acks.started(number, run)
            if any(begin + SETTLING < run.claimed < end for begin, end in self._pauses.get(run.queue, ())):
                text = f"job {number}: {said(run)}, claimed while {run.queue} was paused"
                yield Broken(PAUSED, run.start, self._incidents.explain(run.claimed, run.start), text)
        yield from self._graphs.judge(known)
        yield from self.acks.judge(known)
        yield from self._wrong

    def finish(self) -> Iterator[Broken]:
        """Judge what needs all starts, at the end."""
        yield from self._limits.finish()
