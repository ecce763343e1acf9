"""The end of a task that has steps to undo: its next deliveries undo them; then it ends as it would have ended."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, NoReturn

from .. import engine
from ..engine import Failure
from ..engine.jobs.cancel import CANCELLED
from ..engine.leases.settle import MAX_MESSAGE, MAX_TRACEBACK, clean
from ..exceptions import LeaseLost, LeaseQueueError, NotBegun
from ..worker.atomic import database_of
from ..worker.control import GiveUp, JobAborted, JobControl, JobTimeout, Retry
from ..worker.durable import Crashed
from ..worker.run import plain_failure
from ..worker.undo import UndoFailed, UndoneSteps
from .isolation import IsolatedTaskFailed

if TYPE_CHECKING:
    from .handler import TaskHandler

logger = logging.getLogger("django_leasequeue.tasks")

Judged = tuple[Failure, Retry | GiveUp]


class UndoBegun(LeaseQueueError):
    """A task has failed for good: its next delivery undoes its steps. The cause is what it raised."""

    log_line = "Job failed for good: its next delivery undoes its steps"

    def __init__(self, failure: Failure) -> None:
        self.judged: Judged = failure, Retry(0)
        super().__init__("the task failed for good; its next delivery undoes its steps")


class Undone(LeaseQueueError):
    """The steps of a failed task are undone; ``repeats``: the delivery that has noted its failure before."""

    def __init__(self, failure: Failure, decision: Retry | GiveUp, repeats: int | None) -> None:
        self.judged: Judged = failure, decision
        self.repeats = repeats
        super().__init__(f"its steps are undone; the task failed with {failure.type}: {failure.message}")


def undo(control: JobControl, steps: UndoneSteps, project: str) -> NoReturn:
    """Undo the steps of a job, and end it: by the error that tells how, or cancelled."""
    job = control.job
    note = steps.undo_note or {}
    if note.get("why") is None:  # it has used up its deliveries, and the last one did not come to its end
        last = job.errors[-1] if job.errors else {"type": "MAX_ATTEMPTS", "message": ""}
        failure = Failure(last["type"], last["message"], last.get("traceback") or "", last["type"])
        steps.note({"why": asdict(failure), "gives_up": False, "delivery": last.get("deliveries")})
        note = steps.undo_note or {}
    steps.undo_all()
    if note["why"] == CANCELLED:
        steps.note({"done": True})
        engine.run(engine.cancel(job.queue, seqs=[job.seq], project=project, running=True), database_of(control))
        control.abort("cancelled")
        raise JobAborted("cancelled")
    # Whatever becomes of this run, its delivery is the last one: the job is dead, and is not begun anew.
    repeats = note.get("delivery")
    steps.note({"done": True}, max_deliveries=job.deliveries, repeats=repeats)
    raise Undone(Failure(**note["why"]), GiveUp() if note["gives_up"] else Retry(0), repeats)


def to_undo(control: JobControl, error: BaseException, *, apart: bool = False) -> UndoneSteps | None:
    """Return the steps of a failed run if there may be some to undo; ``apart``: it ran in a process of its own."""
    if control.suspension is not None or isinstance(error, Crashed | NotBegun | IsolatedTaskFailed | Undone):
        return None
    return control.to_undo(unknown=apart)


def turn(control: JobControl, steps: UndoneSteps, error: BaseException, handler: TaskHandler) -> None:
    """Raise what a run with steps to undo ends with in place of an error, unless it is that error."""
    if control.reason == "lease_lost" or isinstance(error, UndoFailed | LeaseLost):
        return
    # It has heeded the order to stop, and is given back. Any other error is a failure as without that order.
    if control.reason in ("stopping", "cancelled") and isinstance(error, JobAborted | CancelledError):
        return
    job, failure = control.job, None
    if control.reason == "timeout" and isinstance(error, JobTimeout | CancelledError):
        error = JobTimeout(handler.timeout(job)[0]).with_traceback(error.__traceback__)
    try:
        if not steps.undo_note:
            steps.load(forgets=False)
        if not (note := steps.undo_note) or note.get("done"):
            return
        if steps.undoing:
            raise UndoFailed from error
        failure, decision = handler.judged(job, error)
        gives_up = isinstance(decision, GiveUp)
        if not gives_up and not 0 < note["max"] <= job.deliveries:
            return
        message, shown = clean(failure.message)[:MAX_MESSAGE], clean(failure.traceback)[-MAX_TRACEBACK:]
        why = asdict(replace(failure, message=message, traceback=shown))
        steps.note({"why": why, "gives_up": gives_up, "delivery": job.deliveries})
    except LeaseLost:
        return
    except UndoFailed:
        raise
    except Exception as trouble:
        logger.exception("It could not be noted that the steps of job %s are to be undone", job.seq)
        failure = failure or plain_failure(trouble)
    raise UndoBegun(failure) from error
