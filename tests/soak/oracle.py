"""The oracle: reads the evidence, and says which promise is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from . import promises
from .durables import Durables
from .evidence import SECOND, Entry
from .flows import Flows
from .incidents import Incidents
from .ledgers import Event, Ledgers
from .runs import DEADLY, FAILED, FLOW, LATE_ACKS, MEMORY, Job, Judge, Leases, Registry, Run, said

#: What breaks the order of jobs.
OUT_OF_TURN = (promises.EARLY, promises.ORDER, promises.RECALLED, promises.AGAIN, promises.PAUSED)
#: The number of an extension in the lease log.
EXTENDED = 3
#: Something is judged when nothing was said of it for so long: entries of several files come in any order.
QUIET = 2 * SECOND
#: So long the first job of a worker that came back is waited for.
PATIENCE = 60 * SECOND


@dataclass(slots=True)
class Row:
    count: int = 0
    lost: int = 0
    late: int = 0
    overlaps: int = 0
    #: Starts of more than a limit allows, and starts out of their turn.
    crowded: int = 0
    early: int = 0
    again: Counter[str] = field(default_factory=Counter)
    #: How often no job was started in time, since every worker ran one that may have nothing beside it.
    busy: int = 0
    #: Times until the first job afterwards, in ns.
    recoveries: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Return:
    """Work may go on since a moment, at one role or ("") everywhere; ``first`` is when it did."""

    fault: str
    role: str
    at: int
    first: int | None = None


class Returns:
    def __init__(self) -> None:
        self._open: list[Return] = []

    def back(self, at: int, who: str, fault: str, role: str) -> None:
        self._open.append(Return(fault, role, at))

    def started(self, at: int, role: str, worker: bool) -> None:
        """Note that a job was started; everywhere, work goes on when one of the workers has started one."""
        for back in self._open:
            if at > back.at and (back.role == role or (worker and not back.role)):
                back.first = at if back.first is None else min(at, back.first)

    def due(self, now: int) -> Iterator[tuple[Return, int | None]]:
        """Yield those of which all is known, with the time that they took; ``None`` where no job came in time."""
        left: list[Return] = []
        due: list[Return] = []
        for back in self._open:
            heard = back.first is not None and back.first + QUIET <= now
            waits = not heard and now < back.at + (PATIENCE if back.role else promises.RECOVERY + QUIET)
            (left if waits else due).append(back)
        self._open = left
        for back in due:
            yield back, None if back.first is None else back.first - back.at


#: Of the workers of the soak.
FEWEST_THREADS = 3


def all_busy(at: int, runs: Iterable[Run], alive: set[str]) -> bool:
    """Whether all threads of each worker were in the middle of runs since a moment, some of them of suspects."""
    until = at + promises.RECOVERY - SECOND
    running = [run for run in runs if run.start <= at and (run.end is None or run.end >= until)]
    suspects = {run.who for run in running if run.alone}
    threads = Counter(run.who for run in running)
    return bool(suspects & alive) and all(threads[who] >= FEWEST_THREADS for who in alive)


class Oracle:
    def __init__(
        self, forgetful: Iterable[str] = (), sure: Iterable[str] = (), readers: Iterable[str] = (),
        workers: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self.incidents = Incidents()
        self.ledgers = Ledgers(frozenset(sure), frozenset(readers), self.incidents)
        self.broken: list[promises.Broken] = []
        self.rows: dict[str, Row] = {}
        self.counts: Counter[str] = Counter()
        #: The most deliveries that a job took which harms nobody.
        self.most_deliveries = 0
        self._forgetful, self._workers = frozenset(forgetful), frozenset(workers)
        self._leases = Leases(self.incidents, self._forgetful)
        self._judge = Judge(self.incidents, self._leases)
        self._registry = Registry()
        self.flows = Flows(self.incidents, self._leases, self._registry)
        self.durables = Durables(self.incidents, self._leases, self._registry)
        self._threads: dict[tuple[str, int], int] = {}
        self._returns = Returns()
        #: Claims that the lease log has to have, each with its time and that of its first start.
        self._claims: dict[int, tuple[int, int]] = {}
        self._known: set[str] = set()
        #: Until when producers made no jobs, since too many waited (monotonic ns).
        self.held_until = 0

    @property
    def waiting(self) -> int:
        """How many committed jobs have not come to an end, those apart that never do."""
        return len(self._registry.waiting)

    def hear(self, entries: Iterable[Entry]) -> None:
        """Take new evidence: who keeps it has a method of its kind's name, and yields what it breaks by itself."""
        flows = self.flows
        hearers = (
            flows,
            flows.limits,
            flows.graphs,
            flows.acks,
            self.durables,
            self.ledgers,
            self.incidents,
            self._returns,
        )
        for kind, at, who, *values in entries:
            methods = (getattr(self, f"_{kind}", None), *(getattr(hearer, kind, None) for hearer in hearers))
            for broken in next(method for method in methods if method)(at, who, *values) or ():
                self._break(broken if broken.fault else broken._replace(fault=self.incidents.explain(at, at)))

    # What producers say

    def _try(self, at: int, who: str, jobs: list[tuple[int, str, str]]) -> None:
        for number, queue, mode in jobs:
            job = self._registry.touch(number, at)
            self.counts["tried"] += not job.tried
            job.tried, job.queue, job.mode = at, queue, mode

    def _committed(self, at: int, who: str, numbers: list[int]) -> None:
        for number in numbers:
            if number in self._registry.over:
                continue
            job = self._registry.touch(number, at)
            self.counts["committed"] += not job.committed
            job.committed = job.committed or at
            self._doubt(number, job)

    def _doubt(self, number: int, job: Job) -> None:
        if job.committed and self.incidents.may_be_lost(job.tried, job.committed):
            job.doubtful = True
        self._registry.note(number, job)

    def _undone(self, at: int, who: str, numbers: list[int]) -> None:
        self.counts["undone"] += len(numbers)
        for number in numbers:
            self._registry.touch(number, at).undone = at

    def _answer(self, at: int, who: str, number: int, right: bool) -> Iterator[promises.Broken]:
        self.counts["answers"] += 1
        if not right:
            yield promises.Broken(promises.WRONG, at, "", f"the answer of job {number} is another's")

    # What handlers say

    def _start(
        self, at: int, who: str, number: int, seq: int, delivery: int, claim: int, claimed: int, deadline: int,
        thread: int, queue: str, alone: bool = False,
    ) -> None:  # fmt: skip
        job = self._registry.touch(number, at)
        before = self._threads.get((who, thread), 0)
        self._threads[who, thread] = at
        run = Run(who, at, seq, delivery, claim, claimed, deadline, queue, before, alone)
        job.runs.append(run)
        self.flows.started(number, run)
        self.counts["runs"] += 1
        if queue not in self._forgetful:
            self._claims[claim] = (claimed, at)
        if job.mode not in DEADLY:
            self.most_deliveries = max(self.most_deliveries, delivery)
        role = self.incidents.role(who)
        self._returns.started(at, role, role in self._workers)

    def _told(self, at: int, who: str, number: int, claim: int, reason: str) -> None:
        run = self._registry.run(number, who, claim, at)
        if run is not None and run.told is None:
            run.told, run.reason = at, reason
            self.counts["told"] += 1

    def _end(self, at: int, who: str, number: int, claim: int, how: str, thread: int) -> None:
        self._threads[who, thread] = at
        if (run := self._registry.run(number, who, claim, at)) is not None:
            job = self._registry.jobs[number]
            self.counts["done"] += how == "done" and not job.done
            run.end, run.how = at, how
            self._registry.note(number, job)

    def _last(
        self, at: int, who: str, number: int, claim: int, cause: str, isolates: bool = False
    ) -> Iterator[promises.Broken]:
        self.incidents.last_words(at, who, cause)
        self.counts["kills"] += 1
        job = self._registry.touch(number, at)
        job.ended_workers += isolates
        if job.ended_workers > 1:
            text = f"job {number} ended a worker's process again, after it was known to"
            yield promises.Broken(promises.HARM, at, "", text)

    # What writers and readers of topics say

    def _put(self, at: int, who: str, topic: str, items: list[int]) -> None:
        self.counts["records"] += len(items)
        self.ledgers.put(at, items)

    def _events(self, at: int, who: str, rows: list[Event]) -> Iterator[promises.Broken]:
        yield from self.ledgers.events(at, rows)
        for _, _, kind, claim, then, deadline, seqs in rows:
            if kind == EXTENDED:
                self._leases.extended(then, deadline, claim, seqs)

    # What was done, and the last look

    def _fault(self, at: int, who: str, number: int, name: str, edge: str, roles: list[str]) -> None:
        self.incidents.fault(at, number, name, edge, roles)
        self.row(name).count += edge == "begin"

    def _kill(self, at: int, who: str, pid: int, name: str) -> None:
        self.incidents.kill(at, who, pid, name)
        self.counts["kills"] += 1

    def _crash(self, at: int, who: str) -> None:
        self.incidents.crashes.append(at)
        self.counts.update(["kills", "crashes"])

    def _failover(self, at: int, who: str, known: int, ended: int) -> None:
        self.incidents.losses.append((known, ended))
        for number, job in self._registry.jobs.items():
            self._doubt(number, job)
        self.ledgers.forget_lost()
        self.counts.update(["kills", "lossy"])

    def _cancelled(self, at: int, who: str, statements: int) -> None:
        self.counts["cancelled"] += statements

    def _dead(self, at: int, who: str, number: int) -> None:
        job = self._registry.touch(number, at)
        job.dead = at
        if job.mode not in DEADLY:
            fault = self.incidents.explain(job.runs[-1].start, at, job.runs[-1].who) if job.runs else ""
            text = f"job {number} of {job.queue} is dead after {len(job.runs)} runs"
            self._break(promises.Broken(promises.INNOCENT, at, fault, text))

    def _differs(self, at: int, who: str, text: str) -> None:
        self._break(promises.Broken(promises.INCONSISTENT, at, "", text))

    # The verdict

    def judge(self, now: int) -> list[promises.Broken]:
        """Judge what nothing new was said of for a moment; return all that is broken so far."""
        for number, at in list(self._registry.touched.items()):
            if at + QUIET > now:
                continue
            if (job := self._registry.jobs.get(number)) is not None:
                found, settled = self._judge.judge(number, job, self.ledgers.known)
                self._break(*found)
                if not settled:
                    continue
            del self._registry.touched[number]
        self._break(*self.flows.judge(min(now - QUIET, self.ledgers.known)))
        self._judge_returns(now)
        for job in self._registry.forget(now):
            self._count_again(job)
            job.runs = job.runs[-1:]
        self._leases.forget(now - MEMORY)
        return self.broken

    def finish(self, now: int, whole: bool = True) -> list[promises.Broken]:
        """Judge everything, at the end, when nothing more will be said; return all that is broken."""
        self.ledgers.known = max(self.ledgers.known, now + QUIET)
        # The others were judged when all was known of them that had to be.
        self._registry.touched = dict.fromkeys(self._registry.touched, 0)
        self.judge(now + promises.RECOVERY + QUIET)
        self._break(*self.flows.limits.finish(), *self.durables.finish())
        for number, job in self._registry.jobs.items():
            self._count_again(job)
            if not whole:
                continue
            self.counts["lost"] += job.doubtful and not job.runs
            has_to_end = job.owed or (job.kept and job.mode in DEADLY)
            if has_to_end and not job.done and not job.dead:
                since = job.runs[-1].start if job.runs else job.committed
                fault = self.incidents.explain(job.committed, since + SECOND)
                self.row(fault).lost += 1
                text = f"job {number} of {job.queue} ({job.mode}) was committed at {job.committed / SECOND:.3f}, and"
                text = f"{text} never ran to its end ({len(job.runs)} runs)"
                self._break(promises.Broken(promises.LOST, now, fault, text))
        if whole:
            claims = {claim for claim, times in self._claims.items() if not self.incidents.may_be_lost(*times)}
            self._break(*self.ledgers.finish(now, claims))
        return self.broken

    def row(self, fault: str) -> Row:
        return self.rows.setdefault(fault, Row())

    def _break(self, *found: promises.Broken) -> None:
        for broken in found:
            if broken.evidence in self._known:
                continue
            self._known.add(broken.evidence)
            self.broken.append(broken)
            row = self.row(broken.fault)
            row.late += broken.promise == promises.LATE
            row.overlaps += broken.promise == promises.OVERLAP
            row.crowded += broken.promise in (promises.CROWDED, promises.RATE)
            row.early += broken.promise in OUT_OF_TURN

    def _judge_returns(self, now: int) -> None:
        for back, took in self._returns.due(now):
            row = self.row(back.fault)
            if took is not None:
                row.recoveries.append(took)
            # Of one worker nothing is promised: others have the jobs.
            if back.role or (took is not None and took <= promises.RECOVERY):
                continue
            if self.incidents.disturbed(back.at, back.at + promises.RECOVERY) or back.at < self.held_until:
                continue
            runs = [run for job in self._registry.jobs.values() for run in job.runs]
            alive = self.incidents.alive(self._workers, back.at, back.at + promises.RECOVERY - SECOND)
            if all_busy(back.at, runs, alive):
                row.busy += 1
                continue
            text = "none came" if took is None else f"it took {took / SECOND:.1f} s"
            self._break(promises.Broken(promises.SLOW, now, back.fault, f"{text} (back at {back.at / SECOND:.3f})"))

    def _count_again(self, job: Job) -> None:
        for first, second in pairwise(sorted(job.runs, key=lambda run: run.start)):
            fault, why = self._judge.again(first, second)
            # A job that raised asked for another run, and one of consumers that settle late may have many.
            if why != FAILED and job.mode != LATE_ACKS:
                self.row(fault).again[why] += 1
            if first.how == "done" and not fault and job.mode in FLOW:
                text = f"a job ({job.mode}): {said(first)}, done, and {said(second)}"
                self._break(promises.Broken(promises.AGAIN, second.start, fault, text))
        if job.runs and job.over and not job.mode:
            self.row("").again["long after its end"] += 1
