"""Jobs whose task this process does not find: they go back, for workers that have its code or for other consumers."""

from __future__ import annotations

import logging

from .. import conf
from ..engine import LeasedJob
from ..enums import JobFlag
from ..exceptions import NotBegun
from .exceptions import NotATask, TaskNotFound

logger = logging.getLogger("django_leasequeue.tasks")

#: Jobs and names that are remembered at most.
MOST = 10_000


class TaskElsewhere(TaskNotFound, NotBegun):
    """The task is not found in this process, and its job goes back; the delivery does not count."""

    is_logged = True


class UnknownTasks:
    """Decides about jobs whose task is not found. Called from many threads at once."""

    def __init__(self) -> None:
        #: When this process met a job first (seconds since 1970, by the database's clock), by number.
        self._met: dict[int, float] = {}
        self._said: set[tuple[str, str | None]] = set()

    def judge(self, job: LeasedJob, error: TaskNotFound) -> TaskNotFound:
        """Return the error to raise: it gives the job back, or, once the grace is over, fails the attempt."""
        options = conf.settings.WORKER
        if isinstance(error, NotATask):
            advice = (
                f"Let its consumer claim from {job.queue!r}, and leave that queue out of --queues. It goes back every"
                f" {options.unknown_task_delay:g} s."
            )
        else:
            if job.claimed_epoch - self._since(job) >= options.unknown_task_grace:
                self._met.pop(job.seq, None)
                return error
            advice = (
                "Deploy the code that has it to every worker of the queue. It goes back every"
                f" {options.unknown_task_delay:g} s, and fails {options.unknown_task_grace:g} s after its first claim."
            )
        self._say(job, f"{error} {advice}")
        elsewhere = TaskElsewhere(str(error))
        elsewhere.back_after_ms = int(options.unknown_task_delay * 1_000)
        return elsewhere

    def _since(self, job: LeasedJob) -> float:
        """Return when the job was claimed first; of one that ran before, when this process met it."""
        if job.deliveries == 1 and not job.flags & JobFlag.FAILED:
            return job.first_claimed_epoch
        if len(self._met) >= MOST:
            self._met.clear()
        return self._met.setdefault(job.seq, job.claimed_epoch)

    def _say(self, job: LeasedJob, text: str) -> None:
        if (job.queue, job.name) in self._said:
            return
        if len(self._said) >= MOST:
            self._said.clear()
        self._said.add((job.queue, job.name))
        logger.warning("A job is given back. %s", text, extra={"seq": job.seq, "queue": job.queue, "job": job.name})
