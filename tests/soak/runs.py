"""What is known of the jobs of a run, which of them have to come to their end, and what runs say of the promises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .evidence import SECOND
from .incidents import Incidents
from .ledgers import seconds
from .promises import LATE, NOTICE, OVERLAP, ROLLED_BACK, SEEING, TWICE_QUEUED, UNKNOWN, Broken

#: Why a job is run again that asked for it.
FAILED = "it failed"
#: Modes of jobs that end as dead letters: they do harm, or fail for ever.
DEADLY = frozenset({"poison", "forever"})
#: Modes of jobs that need not come to their end: those, what comes after them in a workflow, and what starts for a
#: failure: it is taken out where the dead letter was tried again and the workflow completed before it had started.
UNOWED = DEADLY | {"never", "failure", "saga"}
#: The mode of jobs whose runs are told nothing: they settle late.
LATE_ACKS = "late"
#: One that waits in calls of the queue cannot say that it was told; what it still does is judged by its parts.
DURABLE = "durable"
#: Such a job that always fails or is cancelled, and undoes what it did.
SAGA = "saga"
#: How a run ended whose lease was lost before its function was called: its arguments had to be read.
UNBEGUN = "unbegun"
#: Modes of jobs that are in a workflow, under a limit, or of a unique key.
FLOW = frozenset({"node", "limited", "doomed", "forever", "never", "failure", "unique"})
#: What separates two looks at two clocks.
CLOCKS = SECOND // 200
#: What a statement may take between the time that it notes and its commit.
TAKING = SECOND
#: Time within which a thread that was stopped between the worker's check and its job's first step takes that step.
RESUMING = SECOND // 4


@dataclass(slots=True)
class Run:
    who: str
    start: int
    seq: int
    delivery: int
    claim: int
    claimed: int
    deadline: int
    queue: str
    #: When the thread had said something before.
    before: int = 0
    #: Whether an earlier run ended with its process, so that nothing may run beside it.
    alone: bool = False
    #: Whether it was judged, when all was known that had to be; later some of that is forgotten.
    judged: bool = False
    told: int | None = None
    reason: str = ""
    end: int | None = None
    how: str = ""


@dataclass(slots=True)
class Job:
    queue: str = ""
    mode: str = ""
    tried: int = 0
    committed: int = 0
    undone: int = 0
    dead: int = 0
    #: Its commit was answered by a server that took it along.
    doubtful: bool = False
    #: Its cancel was tried, and may have been done.
    recalled: int = 0
    #: It was done long ago, and only what came later is known.
    over: bool = False
    #: How often it ended the process of a worker that could have given it one of its own.
    ended_workers: int = 0
    runs: list[Run] = field(default_factory=list)

    @property
    def kept(self) -> bool:
        """Whether its commit was answered, and neither a server nor a cancel took it along."""
        return self.committed > 0 and not self.recalled and not self.doubtful

    @property
    def owed(self) -> bool:
        """Whether it has to come to its end by a run that is done."""
        return self.kept and self.mode not in UNOWED

    @property
    def done(self) -> bool:
        return self.over or any(run.how == "done" for run in self.runs)


class Leases:
    """How long each lease was, as the lease log has it: what a worker was answered, it may rely on."""

    def __init__(self, incidents: Incidents, forgetful: frozenset[str]) -> None:
        self._incidents, self._forgetful = incidents, forgetful
        #: When each lease was given another deadline, and which.
        self._extensions: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def extended(self, at: int, deadline: int, claim: int, seqs: list[int]) -> None:
        for seq in seqs:
            self._extensions.setdefault((claim, seq), []).append((at, deadline))

    def deadline(self, run: Run, at: int) -> int:
        known = self._extensions.get((run.claim, run.seq), ())
        # Numbers are given again by a server that has not seen all.
        return max([run.deadline, *(deadline for when, deadline in known if run.claimed - CLOCKS <= when <= at)])

    def forgotten(self, run: Run, at: int) -> bool:
        """Whether the server may have taken a run's lease back before a moment, as it is permitted.

        A crash takes leases back where the queue says so, a clock that goes forward ends all, and a server that takes
        over keeps those that it knows up to the deadline that it knows.
        """
        crashed = run.queue in self._forgetful and self._incidents.crashed(run.claimed, at)
        if crashed or self._incidents.jumped(run.claimed, at):
            return True
        return any(
            run.claimed <= ended and known <= at and (run.claimed > known - TAKING or self.deadline(run, known) <= at)
            for known, ended in self._incidents.losses
        )

    def forget(self, before: int) -> None:
        for key, known in list(self._extensions.items()):
            if known[-1][1] < before:
                del self._extensions[key]


class Judge:
    def __init__(self, incidents: Incidents, leases: Leases) -> None:
        self._incidents, self._leases = incidents, leases

    def judge(self, number: int, job: Job, upto: int) -> tuple[list[Broken], bool]:
        """Return what is broken, and whether that is all that can be known of what there is now."""
        runs = sorted(job.runs, key=lambda run: run.start)
        broken = [*self._origin(number, job, runs)] if runs else []
        found = [(late, upto > run.start) for run in runs if not run.judged and (late := self._late(number, run, runs))]
        if job.mode not in (LATE_ACKS, DURABLE, SAGA):
            found += self._overlaps(number, job.mode, runs, upto)
        settled = all(sure for _, sure in found)
        for run in runs if settled else ():
            run.judged = True
        return [*broken, *(one for one, sure in found if sure)], settled

    def _origin(self, number: int, job: Job, runs: list[Run]) -> Iterator[Broken]:
        first, explain = runs[0], self._incidents.explain
        if job.undone and not job.committed:
            fault = explain(job.tried, first.start)
            yield Broken(ROLLED_BACK, first.start, fault, f"job {number} was rolled back, and {said(first)}")
        elif not job.tried and not job.committed:
            yield Broken(UNKNOWN, first.start, "", f"nobody enqueued job {number}, and {said(first)}")
        # One that was lost with its server is enqueued again, where the producer did not hear of it.
        seqs = {run.seq for run in runs if not self._incidents.may_be_lost(run.claimed, run.start)}
        if (job.mode == "keyed" or job.mode in FLOW) and len(seqs) > 1:
            last, text = runs[-1].start, f"job {number} ({job.mode}) was enqueued as {sorted(map(str, seqs))}"
            yield Broken(TWICE_QUEUED, last, explain(first.start, last), text)

    def _late(self, number: int, run: Run, runs: list[Run]) -> Broken | None:
        deadline = self._leases.deadline(run, run.start)
        # A later delivery had started: the lease was over, whatever its deadline was.
        # One that was tried again by an operator begins to count from 1: its earlier ones were claimed earlier.
        others = (other for other in runs if other.delivery > run.delivery and other.claimed > run.claimed)
        later = next((other for other in others if other.start < run.start), None)
        if run.start <= deadline + CLOCKS and later is None:
            return None
        if self._stopped_on_the_way(run) or self._leases.forgotten(run, run.start):
            return None
        text = f"job {number}: {said(run)}, {seconds(deadline, run.start)} after the end of its lease"
        if later is not None:
            text += f", {seconds(later.start, run.start)} after delivery {later.delivery} was started by {later.who}"
        return Broken(LATE, run.start, self._incidents.explain(run.claimed, run.start, run.who), text)

    def _stopped_on_the_way(self, run: Run) -> bool:
        """Whether the process was stopped between the worker's check of the lease and the job's first step."""
        return any(
            run.before <= stop.begin and stop.end <= run.start <= stop.end + RESUMING
            for stop in self._incidents.stops(run.who)
        )

    def _overlaps(self, number: int, mode: str, runs: list[Run], upto: int) -> Iterator[tuple[Broken, bool]]:
        for at, first in enumerate(runs):
            for second in runs[at + 1 :]:
                if first.end is not None and first.end <= second.start:
                    break
                if self._incidents.ended_before(first.who, second.start) or first.how == UNBEGUN:
                    break
                if second.judged or second.claimed < first.claimed:
                    continue  # it is the second that was late
                deadline = self._leases.deadline(first, second.start)
                in_time = first.told is not None and first.told <= deadline - NOTICE + SEEING
                stopped = self._incidents.stopped(first.who, first.claimed, second.start)
                if in_time or stopped or self._leases.forgotten(first, second.start):
                    continue
                told = "was never told" if first.told is None else f"was told {seconds(first.told, deadline)} before it"
                text = (
                    f"job {number}: {said(first)}, its lease ended {seconds(first.start, deadline)} after, it {told};"
                    f" {seconds(deadline, second.start)} after that end {said(second)}"
                )
                fault = self._incidents.explain(first.start, second.start, first.who)
                # One of a workflow may still be reading its arguments.
                known = first.end is not None or mode not in FLOW
                yield Broken(OVERLAP, second.start, fault, text), upto > second.start and known

    def again(self, first: Run, second: Run) -> tuple[str, str]:
        """Return the fault because of which a job was run again, and how the first run ended."""
        incidents = self._incidents
        fault = incidents.explain(first.start, second.start, first.who)
        death = incidents.death(first.who)
        if incidents.stopped(first.who, first.start, second.start):
            return fault, "its process was stopped"
        if first.told is not None:
            return fault, "it was told to stop" if first.how in ("raised", "stopped") else "it was told, and went on"
        if first.end is not None:
            return fault, FAILED if first.how == "raised" else "its end was not heard"
        if death is not None and death.at < second.start + SECOND:
            return fault, "its process died"
        return fault, "it ran on"


def said(run: Run) -> str:
    where = f"{run.who}, seq {run.seq} of {run.queue}, claim {run.claim}"
    return f"delivery {run.delivery} was started at {run.start / SECOND:.3f} by {where}"


#: A job that is done is forgotten after so long.
MEMORY = 120 * SECOND


class Registry:
    """Knows jobs by the numbers that producers gave them."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        #: Those of which something was said, and when, until it is judged.
        self.touched: dict[int, int] = {}
        #: Those that are done and forgotten.
        self.over: set[int] = set()
        #: Those that have to come to their end, and have not.
        self.waiting: set[int] = set()

    def touch(self, number: int, at: int) -> Job:
        self.touched[number] = at
        if number not in self.jobs:
            known = int(number in self.over)
            self.jobs[number] = Job(over=bool(known), tried=known, committed=known)
        return self.jobs[number]

    def find(self, number: int) -> Job | None:
        job = self.jobs.get(number)
        return Job(over=True, committed=1) if job is None and number in self.over else job

    def run(self, number: int, who: str, claim: int, at: int | None = None) -> Run | None:
        if at is not None:
            self.touched[number] = at
        job = self.jobs.get(number)
        runs = [run for run in job.runs if run.who == who and run.claim == claim] if job is not None else []
        return runs[-1] if runs else None

    def note(self, number: int, job: Job) -> None:
        if job.owed and not job.done:
            self.waiting.add(number)
        else:
            self.waiting.discard(number)

    def recall(self, number: int, at: int) -> None:
        if number not in self.over:
            job = self.touch(number, at)
            job.recalled = at
            self.note(number, job)

    def forget(self, now: int) -> Iterator[Job]:
        for number, job in list(self.jobs.items()):
            if job.over or number in self.touched or not job.done or not job.committed:
                continue
            if max(run.start for run in job.runs) + MEMORY > now:
                continue
            yield job
            job.over = True
            if job.mode not in ("keyed", "poison"):  # of which more has to be known when they come again
                del self.jobs[number]
                self.over.add(number)
