"""The oracle: reads the evidence, and says which promise is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from .evidence import SECOND, Entry
from .incidents import Incidents
from .ledgers import Ledgers
from .promises import INCONSISTENT, INNOCENT, LATE, LOST, OVERLAP, RECOVERY, SLOW, WRONG, Broken
from .returns import QUIET, Returns, all_busy
from .runs import FAILED, Job, Judge, Leases, Run

#: A job that is done is forgotten after so long.
MEMORY = 120 * SECOND
#: The number of an extension in the lease log.
EXTENDED = 3


@dataclass(slots=True)
class Row:
    """What one kind of fault did."""

    count: int = 0
    lost: int = 0
    late: int = 0
    overlaps: int = 0
    again: Counter[str] = field(default_factory=Counter)
    #: How often no job was started in time, since every worker ran one that may have nothing beside it.
    busy: int = 0
    #: Times until the first job afterwards, in ns.
    recoveries: list[int] = field(default_factory=list)


class Oracle:
    """Judges a run by its evidence alone.

    Args:
        forgetful: queues whose leases a crash of PostgreSQL may take back.
        sure: topics whose commits wait for the disk.
        readers: names of the readers of topics.
        workers: roles of workers that run a suspect alone.
    """

    def __init__(
        self,
        forgetful: Iterable[str] = (),
        sure: Iterable[str] = (),
        readers: Iterable[str] = (),
        workers: Iterable[str] = (),
    ) -> None:
        self.incidents = Incidents()
        self.ledgers = Ledgers(frozenset(sure), frozenset(readers))
        self.broken: list[Broken] = []
        self.rows: dict[str, Row] = {}
        self.counts: Counter[str] = Counter()
        #: The most deliveries that a job took which harms nobody.
        self.most_deliveries = 0
        self._forgetful = frozenset(forgetful)
        self._workers = frozenset(workers)
        self._leases = Leases()
        self._judge = Judge(self.incidents, self._leases, self._forgetful)
        self._jobs: dict[int, Job] = {}
        #: Jobs that are done and forgotten.
        self._over: set[int] = set()
        self._touched: dict[int, int] = {}
        self._threads: dict[tuple[str, int], int] = {}
        self._returns = Returns()
        self._claims: set[int] = set()
        self._known: set[str] = set()

    @property
    def waiting(self) -> int:
        """How many committed jobs have not come to an end, those apart that never do."""
        return self.counts["committed"] - self.counts["done"]

    def hear(self, entries: Iterable[Entry]) -> None:
        """Take new evidence."""
        for kind, at, who, *values in entries:
            getattr(self, f"_{kind}")(at, who, *values)

    # What producers say

    def _hello(self, at: int, who: str, role: str, pid: int) -> None:
        self.incidents.hello(at, who, role, pid)

    def _try(self, at: int, who: str, jobs: list[tuple[int, str, str]]) -> None:
        for number, queue, mode in jobs:
            job = self._job(number, at)
            if not job.tried:
                self.counts["tried"] += 1
            job.tried, job.queue, job.mode = at, queue, mode

    def _committed(self, at: int, who: str, numbers: list[int]) -> None:
        for number in numbers:
            if number in self._over:
                continue
            job = self._job(number, at)
            if not job.committed and job.mode != "poison":
                self.counts["committed"] += 1
                self.counts["done"] += job.done
            job.committed = job.committed or at

    def _undone(self, at: int, who: str, numbers: list[int]) -> None:
        for number in numbers:
            self._job(number, at).undone = at
            self.counts["undone"] += 1

    def _answer(self, at: int, who: str, number: int, right: bool) -> None:
        self.counts["answers"] += 1
        if not right:
            self._break(Broken(WRONG, at, self.incidents.explain(at, at), f"the answer of job {number} is another's"))

    # What handlers say

    def _start(
        self,
        at: int,
        who: str,
        number: int,
        seq: int,
        delivery: int,
        claim: int,
        claimed: int,
        deadline: int,
        thread: int,
        queue: str,
        alone: bool = False,
    ) -> None:
        job = self._job(number, at)
        before = self._threads.get((who, thread), 0)
        self._threads[who, thread] = at
        job.runs.append(Run(who, at, seq, delivery, claim, claimed, deadline, queue, before, alone))
        self.counts["runs"] += 1
        if queue not in self._forgetful:
            self._claims.add(claim)
        if job.mode != "poison":
            self.most_deliveries = max(self.most_deliveries, delivery)
        self._returns.started(at, self.incidents.role(who))

    def _told(self, at: int, who: str, number: int, claim: int, reason: str) -> None:
        run = self._run(number, who, claim, at)
        if run is not None and run.told is None:
            run.told = at
            self.counts["told"] += 1

    def _end(self, at: int, who: str, number: int, claim: int, how: str, thread: int) -> None:
        self._threads[who, thread] = at
        run = self._run(number, who, claim, at)
        if run is None:
            return
        job = self._jobs[number]
        if how == "done" and not job.done and job.committed and job.mode != "poison":
            self.counts["done"] += 1
        run.end, run.how = at, how

    def _last(self, at: int, who: str, number: int, claim: int, cause: str) -> None:
        self.incidents.last_words(at, who, cause)
        self._touched[number] = at

    # What writers and readers of topics say

    def _put(self, at: int, who: str, topic: str, items: list[int]) -> None:
        self.counts["records"] += len(items)

    def _kept(self, at: int, who: str, topic: str, items: list[int]) -> None:
        self.ledgers.kept(topic, items)

    def _dropped(self, at: int, who: str, topic: str, items: list[int]) -> None:
        self.ledgers.dropped(topic, items)

    def _read(self, at: int, who: str, reader: str, topic: str, pairs: list[tuple[int, int]]) -> None:
        for broken in self.ledgers.read(at, reader, topic, pairs):
            self._break(broken._replace(fault=self.incidents.explain(at, at)))

    def _events(self, at: int, who: str, rows: list[tuple[int, int, int, int, int, list[int]]]) -> None:
        for broken in self.ledgers.events(at, rows):
            self._break(broken._replace(fault=self.incidents.explain(at, at)))
        for _, kind, claim, said, deadline, seqs in rows:
            if kind == EXTENDED:
                self._leases.extended(said, deadline, claim, seqs)

    def _upto(self, at: int, who: str, known: int) -> None:
        self.ledgers.read_upto(known)

    # What was done, and the last look

    def _fault(self, at: int, who: str, number: int, name: str, edge: str, roles: list[str]) -> None:
        self.incidents.fault(at, number, name, edge, roles)
        if edge == "begin":
            self.row(name).count += 1

    def _kill(self, at: int, who: str, pid: int, name: str) -> None:
        self.incidents.done_to("kill", at, pid, name)

    def _stop(self, at: int, who: str, pid: int, name: str) -> None:
        self.incidents.done_to("stop", at, pid)

    def _cont(self, at: int, who: str, pid: int, name: str) -> None:
        self.incidents.done_to("cont", at, pid)

    def _died(self, at: int, who: str, pid: int, name: str) -> None:
        self.incidents.done_to("died", at, pid, name)

    def _crash(self, at: int, who: str) -> None:
        self.incidents.crash(at)

    def _back(self, at: int, who: str, fault: str, role: str) -> None:
        self._returns.note(fault, role, at)

    def _dead(self, at: int, who: str, number: int) -> None:
        job = self._job(number, at)
        job.dead = at
        if job.mode != "poison":
            fault = self.incidents.explain(job.runs[-1].start, at, job.runs[-1].who) if job.runs else ""
            self._break(Broken(INNOCENT, at, fault, f"job {number} of {job.queue} is dead after {len(job.runs)} runs"))

    def _there(self, at: int, who: str, topic: str, pairs: list[tuple[int, int]]) -> None:
        self.ledgers.there(topic, pairs)

    def _differs(self, at: int, who: str, text: str) -> None:
        self._break(Broken(INCONSISTENT, at, "", text))

    # The verdict

    def judge(self, now: int) -> list[Broken]:
        """Judge what nothing new was said of for a moment; return all that is broken so far."""
        for number, at in list(self._touched.items()):
            if at + QUIET > now:
                continue
            job = self._jobs.get(number)
            if job is not None:
                broken, settled = self._judge.judge(number, job, self.ledgers.upto)
                for one in broken:
                    self._break(one)
                if not settled:
                    continue
            del self._touched[number]
        self._judge_returns(now)
        self._forget(now)
        return self.broken

    def finish(self, now: int, whole: bool = True) -> list[Broken]:
        """Judge everything, at the end, when nothing more will be said; return all that is broken.

        Args:
            now: the time.
            whole: whether the run came to its end, so that nothing may be missing.
        """
        self.ledgers.read_upto(now + QUIET)
        # The others were judged when all was known of them that had to be.
        self._touched = dict.fromkeys(self._touched, 0)
        self.judge(now + RECOVERY + QUIET)
        for number, job in self._jobs.items():
            self._count_again(job)
            if not whole:
                continue
            ended = job.done or (job.mode == "poison" and job.dead)
            if job.committed and not ended and not job.dead:
                since = job.runs[-1].start if job.runs else job.committed
                fault = self.incidents.explain(job.committed, since + SECOND)
                self.row(fault).lost += 1
                text = f"job {number} of {job.queue} ({job.mode}) was committed at {job.committed / SECOND:.3f}, and"
                self._break(Broken(LOST, now, fault, f"{text} never ran to its end ({len(job.runs)} runs)"))
        for broken in self.ledgers.finish(now, self._claims) if whole else ():
            self._break(broken)
        return self.broken

    def row(self, fault: str) -> Row:
        """Return what a kind of fault did."""
        return self.rows.setdefault(fault, Row())

    def _break(self, broken: Broken) -> None:
        if broken.evidence in self._known:
            return
        self._known.add(broken.evidence)
        self.broken.append(broken)
        if broken.promise == LATE:
            self.row(broken.fault).late += 1
        elif broken.promise == OVERLAP:
            self.row(broken.fault).overlaps += 1

    def _judge_returns(self, now: int) -> None:
        for back, took in self._returns.due(now):
            row = self.row(back.fault)
            if took is not None:
                row.recoveries.append(took)
            # Of one worker nothing is promised: others have the jobs.
            if back.role or (took is not None and took <= RECOVERY):
                continue
            runs = [run for job in self._jobs.values() for run in job.runs]
            if all_busy(back.at, runs, self.incidents.alive(self._workers, back.at, back.at + RECOVERY - SECOND)):
                row.busy += 1
                continue
            text = "none came" if took is None else f"it took {took / SECOND:.1f} s"
            self._break(Broken(SLOW, now, back.fault, f"{text} (back at {back.at / SECOND:.3f})"))

    def _forget(self, now: int) -> None:
        """Drop what is known of jobs that are done for long."""
        for number, job in list(self._jobs.items()):
            if job.over or number in self._touched or not job.done or not job.committed:
                continue
            if max(run.start for run in job.runs) + MEMORY > now:
                continue
            self._count_again(job)
            job.over = True
            if job.mode not in ("keyed", "poison"):  # of which more has to be known when they come again
                del self._jobs[number]
                self._over.add(number)
        self._leases.forget(now - MEMORY)

    def _count_again(self, job: Job) -> None:
        if not job.runs:
            return
        runs = sorted(job.runs, key=lambda run: run.start)
        for first, second in pairwise(runs):
            fault, why = self._judge.again(first, second)
            # A job that raised asked for another run.
            if why != FAILED:
                self.row(fault).again[why] += 1
        if job.over and not job.mode:
            self.row("").again["long after its end"] += 1
        job.runs = runs[-1:]

    def _job(self, number: int, at: int) -> Job:
        self._touched[number] = at
        job = self._jobs.get(number)
        if job is None:
            job = self._jobs[number] = Job(over=number in self._over)
            if job.over:
                job.tried = job.committed = 1
        return job

    def _run(self, number: int, who: str, claim: int, at: int) -> Run | None:
        self._touched[number] = at
        job = self._jobs.get(number)
        runs = [run for run in job.runs if run.who == who and run.claim == claim] if job is not None else []
        return runs[-1] if runs else None
