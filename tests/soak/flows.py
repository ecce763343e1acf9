"""What is said of acks, limits, workflows and unique tasks, and when it is judged: once all before is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .evidence import SECOND
from .incidents import Incidents
from .ledgers import seconds
from .limits import Limits
from .promises import ACCEPTED, EARLY, FORGED, INPUT, PAUSED, RECALLED, TWICE_QUEUED, Broken
from .runs import CLOCKS, Job, Leases, Registry, Run, said

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
            pauses = () if self._incidents.shown_twice(run.claimed) else self._pauses.get(run.queue, ())
            if any(begin + SETTLING < run.claimed < end for begin, end in pauses):
                text = f"job {number}: {said(run)}, claimed while {run.queue} was paused"
                yield Broken(PAUSED, run.start, self._incidents.explain(run.claimed, run.start), text)
        yield from self._graphs.judge(known)
        yield from self.acks.judge(known)
        yield from self._wrong

    def finish(self) -> Iterator[Broken]:
        """Judge what needs all starts, at the end."""
        yield from self._limits.finish()
