"""What is said of acks, limits, workflows and unique tasks, and when it is judged: once all before is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .evidence import SECOND
from .incidents import FOR_EVER, Incidents
from .ledgers import seconds
from .pace import KEPT, LATE, PART, PARTS, Pace
from .promises import (
    ACCEPTED,
    CROWDED,
    EARLY,
    FORGED,
    INPUT,
    NOTICE,
    ORDER,
    PAUSED,
    RATE,
    RECALLED,
    SEEING,
    STARVED,
    TWICE_QUEUED,
    Broken,
)  # fmt: skip
from .runs import CLOCKS, Job, Leases, Registry, Run, said


@dataclass(slots=True)
class Key:
    """A key of a limit: how many run at once, and the jobs in the order of their enqueueing by one producer."""

    name: str
    most: int
    places: dict[int, int] = field(default_factory=dict)
    running: list[tuple[int, Run]] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)
    #: The last one in that order that has been started, and when.
    last: tuple[int, int, int] = (-1, 0, 0)


class Limits:
    """Holds what producers say of limits against the starts. Methods have the names of evidence."""

    def __init__(self, incidents: Incidents, leases: Leases, registry: Registry) -> None:
        self._incidents, self._leases, self._lookup = incidents, leases, registry.find
        self._keys: dict[str, Key] = {}
        self._of: dict[int, Key] = {}
        self._pace: Pace | None = None

    @property
    def kept(self) -> str:
        """How much of the rate started while jobs waited and nothing was done to anybody."""
        pace = self._pace
        return f"{pace.kept:.0%} of a rate in {pace.parts} calm times" if pace is not None and pace.parts else ""

    @property
    def jobs(self) -> int:
        return len(self._of) + (len(self._pace.tries) if self._pace is not None else 0)

    def under(self, at: int, who: str, jobs: list[tuple[int, str, int, bool]]) -> None:
        for number, name, most, ordered in jobs:
            key = self._of[number] = self._keys.setdefault(name, Key(name, most))
            if ordered:
                key.places[number] = len(key.places)

    def paced(self, at: int, who: str, numbers: list[int], rate: int, per: int) -> None:
        self._pace = self._pace or Pace(rate, per)
        self._pace.tries.update(dict.fromkeys(numbers, at))

    def started(self, number: int, run: Run) -> Iterator[Broken]:
        """Judge a start. They come in the order of time, and all that happened before is known."""
        # A server that takes over does not know the permits that were given last.
        known = not self._incidents.may_be_lost(run.claimed, run.start)
        if (pace := self._pace) is not None and number in pace.tries and number not in pace.starts and known:
            pace.starts[number] = run.start
            job = self._lookup(number)
            if job is not None and 0 < job.committed < run.start:
                pace.waits.append((job.committed, run.start))
            yield from self._in_window(pace, run.start)
        key = self._of.get(number)
        if key is None:
            return
        key.running = [one for one in key.running if one[0] != number and self._holds(*one, run.start)]
        if len(key.running) >= key.most:
            held = "; ".join(f"job {other}, {said(first)}" for other, first in key.running)
            fault = self._incidents.explain(min(first.start for _, first in key.running), run.start)
            text = f"{key.name} allows {key.most}: job {number}, {said(run)}, while there ran: {held}"
            yield Broken(CROWDED, run.start, fault, text)
        key.running.append((number, run))
        if number not in key.begun:
            key.begun.add(number)
            yield from self._in_order(key, number, run)

    def _holds(self, number: int, run: Run, at: int) -> bool:
        """Whether a run had its slot at a time, as far as it could know."""
        if (run.end is not None and run.end <= at) or self._incidents.ended_before(run.who, at):
            return False
        job, told = self._lookup(number), run.told is not None and run.told <= at
        recalled = job is not None and job.recalled and job.recalled <= at
        # Where it was told for another reason its worker ends, and has given it back.
        if recalled or (told and run.reason != "lease_lost") or self._leases.forgotten(run, at):
            return False
        deadline = self._leases.deadline(run, at)
        if at < deadline - CLOCKS:
            return True
        in_time = run.told is not None and run.told <= deadline - NOTICE + SEEING
        return not in_time and not self._incidents.stopped(run.who, run.claimed, at)

    def _in_order(self, key: Key, number: int, run: Run) -> Iterator[Broken]:
        if (place := key.places.get(number)) is None:
            return
        last, other, at = key.last
        if place > last:
            key.last = (place, number, run.start)
            return
        job = self._lookup(number)
        # One that was claimed before and came back after a delay has let others go first; of one whose commit was not
        # answered nobody knows when it was committed.
        if job is None or not (job.committed or job.over) or run.delivery > 1 or run.alone:
            return
        if self._leases.forgotten(run, run.start):
            return
        fault = self._incidents.explain(job.tried, run.start, run.who)
        text = f"job {number} of {key.name}, {said(run)}, {seconds(at, run.start)} after job {other},"
        yield Broken(ORDER, run.start, fault, f"{text} which was enqueued after it")

    def _in_window(self, pace: Pace, at: int) -> Iterator[Broken]:
        """No time of the limit's length has more starts than it says, whatever happened before."""
        pace.last = [*pace.last[-pace.rate :], at]
        first = pace.last[0]
        if len(pace.last) > pace.rate and at - first < pace.per - CLOCKS and not self._incidents.jumped(first, at):
            text = f"{pace.rate + 1} jobs under the rate started in {(at - first) / SECOND:.3f} s"
            yield Broken(RATE, at, self._incidents.explain(first, at), text)

    def finish(self) -> Iterator[Broken]:
        if (pace := self._pace) is None:
            return
        pace.measure(self._incidents.calm)
        if pace.parts >= PARTS and pace.kept < KEPT:
            text = f"{pace.started} jobs under the rate started in {pace.parts} times {PART * pace.per // SECOND} s"
            yield Broken(STARVED, max(pace.starts.values()), "", f"{text}: {pace.kept:.0%} of it")
        # From a moment at which none waits so many may start: one at once, half of one that is caught up, and one more
        # each time; each as late as a worker may be.
        moments = [(pace.tries[number], 0, number) for number in pace.starts]
        moments += [(at, 1, number) for number, at in pace.starts.items()]
        begin, waiting, started = 0, 0, 0
        for at, kind, number in sorted(moments):
            if kind == 0:
                if not waiting:
                    begin, started = at, 0
                waiting += 1
                continue
            waiting -= 1
            started += 1
            allowed = 1.5 + (at - begin + LATE + CLOCKS) * pace.rate / pace.per
            if started > allowed and not self._incidents.jumped(begin, at):
                fault = self._incidents.explain(begin, at)
                text = f"{started} jobs under the rate started in {(at - begin) / SECOND:.3f} s; {allowed:.1f} may"
                yield Broken(RATE, at, fault, f"{text} (job {number} was the last)")
                return


#: Its outcome was not heard.
DOUBT = "doubt"


class Ack(NamedTuple):
    claim: int
    claimed: int
    asked: int
    answered: int


class Acks:
    """Holds what consumers say of their acks against the starts. Methods have the names of evidence."""

    def __init__(self, incidents: Incidents, registry: Registry) -> None:
        self._incidents, self._registry, self._lookup = incidents, registry, registry.find
        self._accepted: dict[int, Ack] = {}
        self._due: list[int] = []
        self.late = self.refused = 0

    def acked(self, at: int, who: str, number: int, claim: int, claimed: int, asked: int, outcome: str) -> None:
        run, job = self._registry.run(number, who, claim, at), self._registry.jobs.get(number)
        if outcome == "ok" and not self._incidents.may_be_lost(asked, at):
            self._accepted[number] = Ack(claim, claimed, asked, at)
            self._due.append(number)
            self.late += run is not None and asked > run.deadline
        elif outcome == DOUBT and job is not None:
            job.doubtful = True
        if job is not None:
            self._registry.note(number, job)

    def forged(self, at: int, who: str, number: int, name: str, outcome: str) -> Iterator[Broken]:
        self.refused += outcome != "ok"
        if outcome == "ok":
            yield Broken(FORGED, at, "", f"{name}: job {number}")

    def started(self, number: int, run: Run) -> Iterator[Broken]:
        ack = self._accepted.get(number)
        if ack is None or run.claim == ack.claim or run.claimed <= ack.answered + CLOCKS:
            return
        # What a server that took over did not know was asked before it did, and may be known only now.
        if not self._incidents.may_be_lost(ack.asked, ack.answered):
            text = f"job {number} was acked under claim {ack.claim}, claimed later, and {said(run)}"
            yield Broken(ACCEPTED, run.start, self._incidents.explain(ack.asked, run.start), text)

    def judge(self, known: int) -> Iterator[Broken]:
        """Judge acks up to a time of which all is known: none was accepted whose job another had by then."""
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


class Graphs:
    """Holds what producers say of workflows and of keys against the starts. Methods have the names of evidence."""

    def __init__(self, incidents: Incidents, registry: Registry) -> None:
        self._incidents, self._registry, self._lookup = incidents, registry, registry.find
        #: Workflows that were committed, dead letters that were tried again, cancels of jobs and of workflows.
        self.workflows = self.tried_again = self.cancels = 0
        #: What a job comes after, and whether however that ended.
        self._parents: dict[int, tuple[list[int], bool]] = {}
        self._recalled: dict[int, int] = {}
        #: The last job that was made under a unique key, and when that was answered.
        self._holders: dict[str, tuple[int, int]] = {}
        self._made: list[tuple[int, int, str]] = []

    def after(self, at: int, who: str, edges: list[tuple[int, list[int], bool]]) -> None:
        self._parents.update({number: (parents, tolerant) for number, parents, tolerant in edges})

    def workflow(self, at: int, who: str, numbers: list[int]) -> None:
        self.workflows += 1

    def unique(self, at: int, who: str, number: int, key: str) -> None:
        self._made.append((at, number, key))

    def recall(self, at: int, who: str, numbers: list[int]) -> None:
        for number in numbers:
            self._registry.recall(number, at)

    def recalled(self, at: int, who: str, numbers: list[int]) -> None:
        self.cancels += 1
        self._recalled.update(dict.fromkeys(numbers, at))

    def stays(self, at: int, who: str, numbers: list[int]) -> None:
        self.recall(0, who, numbers)

    def healed(self, at: int, who: str, numbers: list[int]) -> None:
        self.tried_again += len(numbers)

    def took(self, at: int, who: str, number: int, right: bool) -> Iterator[Broken]:
        if not right:
            text = f"job {number} got other values than those before it returned"
            yield Broken(INPUT, at, self._incidents.explain(at, at, who), text)

    def started(self, number: int, run: Run) -> Iterator[Broken]:
        """Judge a start. They come in the order of time, and all that happened before is known."""
        gone = self._recalled.get(number)
        job = self._lookup(number)
        unsure = job is not None and self._incidents.may_be_lost(job.recalled, gone or 0)
        if gone is not None and run.claimed > gone + CLOCKS and not unsure:
            fault = self._incidents.explain(gone, run.start)
            yield Broken(RECALLED, run.start, fault, f"job {number} was taken out, claimed later, and {said(run)}")
        # Where its worker, or the server, was in the hands of a fault it may have heard later.
        elif gone and run.start > gone + HEARING:
            late = f"{seconds(gone, run.start)} after that {said(run)}"
            if not self._incidents.disturbed(gone - ECHO, run.start, self._incidents.role(run.who)):
                yield Broken(RECALLED, run.start, "", f"job {number} was taken out with its workflow; {late}")
        parents, tolerant = self._parents.get(number, ([], False))
        for parent in parents:
            before = self._lookup(parent)
            if before is None or not self._ended(before, run.start, tolerant):
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
        due = sorted(made for made in self._made if made[0] <= known)
        self._made = [made for made in self._made if made[0] > known]
        for at, number, key in due:
            holder = self._holders.get(key)
            self._holders[key] = (number, at)
            # Which of two that were made at nearly the same time was the first is not known.
            if holder is None or self._had_ended(holder[0], at) or self._had_ended(number, holder[1]):
                continue
            text = f"the key {key} has job {number}, and had job {holder[0]}, which had not ended"
            yield Broken(TWICE_QUEUED, at, self._incidents.explain(holder[1], at), text)

    def _had_ended(self, number: int, at: int) -> bool:
        job = self._lookup(number)
        return job is not None and (job.doubtful or self._ended(job, at, tolerant=False))


#: The longest that a claim which began before its queue was paused goes on.
SETTLING = SECOND // 4


class Flows:
    """Holds what producers say of limits, workflows and keys against the starts. Methods have the names of evidence."""

    def __init__(self, incidents: Incidents, leases: Leases, registry: Registry) -> None:
        self._incidents = incidents
        self.limits = Limits(incidents, leases, registry)
        self.graphs = Graphs(incidents, registry)
        self.acks = Acks(incidents, registry)
        #: Starts that were not judged yet.
        self._starts: list[tuple[int, int, Run]] = []
        #: When each queue was paused, and when it was resumed.
        self._pauses: dict[str, list[tuple[int, int]]] = {}

    def paused(self, at: int, who: str, queue: str) -> None:
        self._pauses.setdefault(queue, []).append((at, FOR_EVER))

    def resumed(self, at: int, who: str, queue: str) -> None:
        self._pauses[queue][-1] = (self._pauses[queue][-1][0], at)

    def started(self, number: int, run: Run) -> None:
        self._starts.append((run.start, number, run))

    def judge(self, known: int) -> Iterator[Broken]:
        due = sorted((start for start in self._starts if start[0] <= known), key=lambda start: start[0])
        self._starts = [start for start in self._starts if start[0] > known]
        for _, number, run in due:
            yield from self.limits.started(number, run)
            yield from self.graphs.started(number, run)
            yield from self.acks.started(number, run)
            pauses = () if self._incidents.shown_twice(run.claimed) else self._pauses.get(run.queue, ())
            if any(begin + SETTLING < run.claimed < end for begin, end in pauses):
                text = f"job {number}: {said(run)}, claimed while {run.queue} was paused"
                yield Broken(PAUSED, run.start, self._incidents.explain(run.claimed, run.start), text)
        yield from self.graphs.judge(known)
        yield from self.acks.judge(known)
