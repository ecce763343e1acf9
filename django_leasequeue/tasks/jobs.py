"""From tasks to jobs: what a task becomes in the database, and the operations that put it there and read it back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.utils import timezone

from .. import conf, engine
from ..engine.operation import BEGIN, Steps, operation
from ..engine.queues.definition import Definition
from ..engine.queues.queues import make_declared
from ..exceptions import QueueNotFound
from . import backoff as backoffs
from .api import DEFAULT_TASK_BACKEND_ALIAS, Task
from .options import BackendOptions
from .task import LeaseQueueTask


def new_job(
    task: Task[..., Any], id_end: str, args: Sequence[Any], kwargs: Mapping[str, Any], backend: str
) -> engine.NewJob:
    """Return the job of one call of a task: ``args`` and ``kwargs`` are JSON already."""
    data: dict[str, Any] = {}
    if args:
        data["args"] = args
    if kwargs:
        data["kwargs"] = kwargs
    run_at = task.run_after
    if run_at is not None and timezone.is_naive(run_at):
        run_at = timezone.make_aware(run_at)
    return engine.NewJob(
        data=data or None,
        id_end=id_end,
        name=task.module_path,
        priority=task.priority or None,
        meta=_meta(task, backend) or None,
        run_at=run_at,
        max_deliveries=task.max_attempts if isinstance(task, LeaseQueueTask) else None,
    )


def _meta(task: Task[..., Any], backend: str) -> dict[str, Any]:
    """What the worker must know and does not find on the declared task."""
    meta: dict[str, Any] = {}
    if backend != DEFAULT_TASK_BACKEND_ALIAS:
        meta["backend"] = backend
    if isinstance(task, LeaseQueueTask) and task.changed:
        if "timeout" in task.changed:
            meta["timeout"] = task.timeout
        if "backoff" in task.changed:
            meta["backoff"] = backoffs.dump(task.backoff)
    return meta


@operation
def submit(
    queues: Mapping[str, Sequence[engine.NewJob]], options: BackendOptions
) -> Steps[dict[str, list[engine.Enqueued]]]:
    """Add jobs to queues of one database, all or none; a queue that is missing is made as the settings declare it.

    Args:
        queues: the jobs of each queue, at least one in all.
        options: the backend's.

    Returns:
        The engine's answers for each queue, in order.

    Raises:
        QueueNotFound: a queue is missing, nothing declares it, and ``LEASEQUEUE["AUTO_CREATE"]`` is off.
        InvalidOption: a job was refused; nothing was added.
    """
    batches = list(_batches(queues))
    if len(batches) > 1:
        yield BEGIN, {}
    answers: dict[str, list[engine.Enqueued]] = {}
    for queue, jobs in batches:
        try:
            added = yield from _add(queue, jobs, options).steps()
        except QueueNotFound:
            yield from make_declared(options.project, queue, Definition(*options.declaration(queue)), options.database)
            added = yield from _add(queue, jobs, options).steps()
        answers.setdefault(queue, []).extend(added)
    return answers


def _batches(queues: Mapping[str, Sequence[engine.NewJob]]) -> Iterator[tuple[str, Sequence[engine.NewJob]]]:
    size = conf.settings.MAX_ENQUEUE
    for queue, jobs in queues.items():
        for start in range(0, len(jobs), size):
            yield queue, jobs[start : start + size]


def _add(queue: str, jobs: Sequence[engine.NewJob], options: BackendOptions) -> engine.Operation[list[engine.Enqueued]]:
    return engine.enqueue(queue, jobs, project=options.project, create=False, fresh=True)


@operation
def find(key: str, project: str) -> Steps[tuple[Any, ...] | None]:
    """Read what is known of a job by its key; ``None`` if nothing is."""
    rows = yield "task_result", {"key": key, "project": project}
    return rows[0] if rows else None
