"""Tasks that replace themselves: another call is enqueued in their place, and its end is theirs."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..enums import JobFlag
from ..exceptions import InvalidOption, JobCancelled, JobFailed
from ..worker.control import JobControl
from .api import DEFAULT_TASK_BACKEND_ALIAS, TaskResultDoesNotExist, task_backends
from .context import replacing
from .exceptions import FailForGood
from .results import number_of
from .signature import Step
from .workflow_result import WorkflowResult, get_workflow_result

#: Calls that may replace one another.
MAX_REPLACEMENTS = 100
#: The step in which a job keeps what has replaced it; ``step_replacements.sql`` looks for it.
STEP = "$replaced"


class ReplacementFailed(FailForGood):
    """What has replaced a task has failed, or was cancelled."""

    def __init__(self, error: JobFailed | JobCancelled) -> None:
        self.error_type = getattr(error, "error_type", None) or f"{type(error).__module__}.{type(error).__qualname__}"
        super().__init__(getattr(error, "error", None) or str(error))


def replacement_of(control: JobControl) -> Any:
    """Return what an earlier delivery has put in the job's place, ``None`` if it has not."""
    job = control.job
    if job.deliveries <= 1 and not job.flags & JobFlag.FAILED:
        return None
    return control.find_step(STEP)


def replaced(control: JobControl, call: Any = None) -> Any:
    """Return the value of what replaces the job: it is started if it is not, and waited for without a thread."""
    # What replaces it may be under the same limit.
    control.keeps_slot = False
    started = control.step(STEP, partial(_start, control, call), atomic=True)
    try:
        return control.wait_for_result(_result_of(started))
    except TaskResultDoesNotExist as error:
        raise ReplacementFailed(JobCancelled(started.get("task") or started.get("workflow"))) from error
    except (JobFailed, JobCancelled) as error:
        raise ReplacementFailed(error) from error


def _start(control: JobControl, call: Any) -> dict[str, Any]:
    if not isinstance(call, Step):
        raise InvalidOption(
            f"replace() takes a signature, such as task.s(1), a chain, a group or a chord; it is {call!r:.200}."
        )
    depth = (control.job.meta or {}).get("replaces", 0) + 1
    if depth > MAX_REPLACEMENTS:
        raise InvalidOption(f"{MAX_REPLACEMENTS} calls have replaced one another; that is the most.")
    token = replacing.set(depth)
    try:
        result: Any = call.enqueue()
    finally:
        replacing.reset(token)
    backend: Any = task_backends[result.backend]
    kept = {"backend": result.backend}
    if isinstance(result, WorkflowResult):
        return {**kept, "workflow": result.id, "project": backend.config.project}
    if not hasattr(backend, "config"):
        raise InvalidOption(f"the backend {result.backend!r} of {call!r:.200} keeps no jobs: it cannot replace one.")
    # Another job that has its key stays when this one is cancelled.
    own = {"seq": number_of(result.id), "queue": result.task.queue_name, "project": backend.config.project}
    return {**kept, "task": result.id, **(own if result.created else {})}


def _result_of(started: dict[str, Any]) -> Any:
    alias = started.get("backend", DEFAULT_TASK_BACKEND_ALIAS)
    if "workflow" in started:
        return get_workflow_result(started["workflow"], alias)
    return task_backends[alias].get_result(started["task"])
