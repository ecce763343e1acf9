"""The seam between the worker, which runs jobs, and what a job is: a Django task, a consumer's function."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from ..engine import Failure, LeasedJob
from .control import JobControl

#: What became of a job: done, failed for good, failed and to be tried again, dead after its last try.
EndingName = Literal["completed", "failed", "failing", "dead"]


class Retry(NamedTuple):
    """Try the job again after ``delay_ms`` (``None``: the queue's backoff), as long as it has deliveries left."""

    delay_ms: int | None = None


class GiveUp(NamedTuple):
    """Fail the job for good, with its result kept: no more tries."""


class Handler(Protocol):
    """The kind of object that runs a worker's jobs. One instance a process; called from many threads at once.

    The class that the option ``handler`` names is called with ``project`` (the tenant) as its only argument.
    """

    def is_async(self, job: LeasedJob) -> bool:
        """Return whether the job runs in the event loop (``arun``) or in a thread (``run``). Must not raise."""

    def timeout(self, job: LeasedJob) -> tuple[float | None, float | None]:
        """Return the soft and the hard timeout of the job in seconds, ``None`` for none. Must not raise.

        Without a hard one the job may go on for the worker's ``timeout_grace`` after the soft one.
        """

    def run(self, job: LeasedJob, control: JobControl) -> str | None:
        """Run the job, in a thread of the worker; return its result as JSON text (``None``: null)."""

    async def arun(self, job: LeasedJob, control: JobControl) -> str | None:
        """Run the job in the worker's event loop; return its result as JSON text (``None``: null)."""

    def failed(self, job: LeasedJob, error: BaseException) -> tuple[Failure, Retry | GiveUp]:
        """Say what is kept of an error and whether the job is tried again. Runs in the thread of the job."""

    def settled(
        self,
        job: LeasedJob,
        ending: EndingName,
        *,
        result_json: str | None = None,
        failure: Failure | None = None,
        available_at: datetime | None = None,
    ) -> None:
        """Hear what the database has accepted: here signals are sent.

        Called once a run, from the worker's acknowledging thread, for every job: it must cost nothing when no receiver
        listens.

        Args:
            job: the job.
            ending: ``completed``; ``failed`` (for good, by ``GiveUp``); ``failing`` (it will be tried again);
                ``dead`` (it was, for the last time).
            result_json: what ``run`` returned.
            failure: what ``failed`` made of the error.
            available_at: of a job that is failing: when it is due again, ``None`` for at once.
        """
