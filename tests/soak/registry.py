"""The jobs of a run: what is known of each, which of them have to come to their end, which are long over."""

from __future__ import annotations

from collections.abc import Iterator

from .evidence import SECOND
from .runs import Job, Run

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
        """Return a job of which something is said; one that is new is made."""
        self.touched[number] = at
        job = self.jobs.get(number)
        if job is None:
            job = self.jobs[number] = Job(over=number in self.over)
            if job.over:
                job.tried = job.committed = 1
        return job

    def find(self, number: int) -> Job | None:
        """Return what is known of a job, ``None`` if nobody spoke of it."""
        job = self.jobs.get(number)
        return Job(over=True, committed=1) if job is None and number in self.over else job

    def run(self, number: int, who: str, claim: int, at: int) -> Run | None:
        """Return the run of which something is said."""
        self.touched[number] = at
        job = self.jobs.get(number)
        runs = [run for run in job.runs if run.who == who and run.claim == claim] if job is not None else []
        return runs[-1] if runs else None

    def note(self, number: int, job: Job) -> None:
        """Note whether a job has to come to its end."""
        if job.owed and not job.done:
            self.waiting.add(number)
        else:
            self.waiting.discard(number)

    def recall(self, number: int, at: int) -> None:
        """Note that the cancel of a job was tried; 0: it was not cancelled."""
        if number not in self.over:
            job = self.touch(number, at)
            job.recalled = at
            self.note(number, job)

    def forget(self, now: int) -> Iterator[Job]:
        """Drop what is known of jobs that are done for long; yield each."""
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
