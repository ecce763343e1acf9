"""Calls of tasks made into jobs: their results and ids, and the operation that stores them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC
from typing import Any, NamedTuple, cast
from uuid import uuid4

from .. import conf, engine
from ..engine import codec, tags
from ..engine.jobs.unique import hold_steps
from ..engine.operation import BEGIN, Steps, operation
from ..engine.queues.definition import Definition
from ..engine.queues.queues import make_declared
from ..exceptions import QueueNotFound
from . import backoff as backoffs
from .api import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskResult, aware, local
from .exceptions import TaskNotFound
from .keys import check_arguments, is_about_key, limit_of_call, unique_fields
from .options import BackendOptions
from .result_rows import ResultRow, result_of_row
from .results import new_result, note_stored
from .task import LeaseQueueTask

_ID_END = engine.NewJob._fields.index("id_end")


class TaskCalls:
    """Calls of one task that are about to be stored.

    Args:
        task: the task, valid for its backend.
        backend: alias of the backend that enqueues them.
        common_tags: those of the workflow that they are in.
    """

    __slots__ = ("_after", "_before", "_is_keyed", "_is_limited", "_task", "backend")

    def __init__(self, task: Task[..., Any], backend: str, common_tags: dict[str, Any] | None = None) -> None:
        self._task, self.backend = task, backend
        common = engine.NewJob(
            name=task.module_path,
            # Django takes 5.0 for 5.
            priority=int(task.priority) or None,
            meta=_meta(task, backend) or None,
            run_at=None if task.run_after is None else aware(task.run_after),
            max_deliveries=task.max_attempts if isinstance(task, LeaseQueueTask) else None,
            ttl_ms=_ttl_ms(task),
            tags=tags.with_inherited({**(common_tags or {}), **(getattr(task, "tags", None) or {})} or None),
        )
        # Of a tuple's parts another one is made faster than by names.
        self._before, self._after = common[1:_ID_END], common[_ID_END + 1 :]
        self._is_keyed = isinstance(task, LeaseQueueTask) and is_about_key(task)
        self._is_limited = getattr(task, "limit", None) is not None

    def prepare(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], id_end: str
    ) -> tuple[TaskResult[Any], engine.NewJob]:
        """Return the result and the job of one call.

        Args:
            args: positional arguments.
            kwargs: keyword arguments.
            id_end: end of the result's id, see ``new_ends``.

        Raises:
            TypeError: the task does not take them, or one has a type that JSON does not have.
            ValueError: one has a value that JSON cannot hold.
            InvalidTask: the key of the task or of its limit cannot be made of them.
        """
        task = self._task
        check_arguments(task, args, kwargs)
        result = new_result(task, args, kwargs, self.backend)
        job = self.job(result, id_end)
        if self._is_limited:
            job = job._replace(limit=limit_of_call(task, result.args, result.kwargs))
        return result, job

    def job(self, result: TaskResult[Any], id_end: str, **more: Any) -> engine.NewJob:
        """Return the job of a call, without its limit.

        Args:
            result: the call's result, see ``new_result``.
            id_end: end of the result's id, see ``new_ends``.
            more: what the payload holds beside the arguments.

        Raises:
            ValueError: an argument has a value that JSON cannot hold.
            InvalidTask: the key of the task cannot be made of the arguments.
        """
        data = more
        if result.args:
            data["args"] = result.args
        if result.kwargs:
            data["kwargs"] = result.kwargs
        # As text, which the garbage collector does not look at: of many calls there would be many dicts for it.
        written = codec.JsonText(codec.dumps(data)) if data else None
        job = tuple.__new__(engine.NewJob, (written, *self._before, id_end, *self._after))
        if self._is_keyed:
            return job._replace(**unique_fields(cast("Any", self._task), result.args, result.kwargs))
        return job


def _ttl_ms(task: Task[..., Any]) -> int | None:
    expires = getattr(task, "expires", None)
    return None if expires is None else round(expires * 1000)


def _meta(task: Task[..., Any], backend: str) -> dict[str, Any]:
    """Return what the worker and readers of the result must know and do not find on the declared task."""
    meta: dict[str, Any] = {}
    if task.run_after is not None:
        meta["run_after"] = aware(task.run_after).astimezone(UTC).isoformat()
    if backend != DEFAULT_TASK_BACKEND_ALIAS:
        meta["backend"] = backend
    if isinstance(task, LeaseQueueTask) and task.changed:
        if "timeout" in task.changed:
            meta["timeout"] = task.timeout
        if "ignore_result" in task.changed:
            meta["ignore_result"] = task.ignore_result
        if "backoff" in task.changed:
            meta["backoff"] = backoffs.dump(task.backoff)
    return meta


class Calls(NamedTuple):
    """Calls for one queue that are about to be stored, in order: results for the caller, jobs for the database."""

    results: list[TaskResult[Any]]
    jobs: list[engine.NewJob]


#: Calls by their queues.
Queues = dict[str, Calls]


def jobs_of(queues: Queues) -> dict[str, list[engine.NewJob]]:
    """Return the jobs of calls."""
    return {name: calls.jobs for name, calls in queues.items()}


def with_known_ids(calls: Calls) -> Calls:
    """Return the calls with ids that are known before they are stored; their results have them."""
    jobs = [job._replace(id_end=None, key=str(uuid4())) for job in calls.jobs]
    for result, job in zip(calls.results, jobs, strict=True):
        object.__setattr__(result, "id", job.key)
    return calls._replace(jobs=jobs)


class Taken(NamedTuple):
    """A call whose key is taken, and the number of the job that has it."""

    result: TaskResult[Any]
    job: engine.NewJob
    seq: int


def note(queues: Queues, answers: Mapping[str, Sequence[engine.Enqueued]]) -> dict[str, list[Taken]]:
    """Note the ids and times of new jobs; return the calls whose keys are taken."""
    taken: dict[str, list[Taken]] = {}
    at, shown = None, None
    for name, calls in queues.items():
        for result, job, (seq, status, _, created_at) in zip(*calls, answers[name], strict=True):
            if status is not engine.EnqueueStatus.QUEUED:
                taken.setdefault(name, []).append(Taken(result, job, seq))
                continue
            if created_at is not at:  # those of one statement have one object
                at, shown = created_at, local(created_at)
            note_stored(result, None if job.id_end is None else engine.make_id(seq, job.id_end), shown)
    return taken


def note_taken(
    taken: Mapping[str, Sequence[Taken]],
    found: Mapping[int, tuple[str, ResultRow | None]],
    alias: str,
) -> Queues:
    """Make the results of calls whose keys were taken those that are there; return calls whose keys are free now."""
    left: Queues = {}
    for name, items in taken.items():
        for result, job, seq in items:
            if seq not in found:
                free = left.setdefault(name, Calls([], []))
                free.results.append(result)
                free.jobs.append(job)
                continue
            key, row = found[seq]
            object.__setattr__(result, "id", key)
            object.__setattr__(result, "_created", False)
            # The key may be that of a job that is no task of this project's code.
            with suppress(TaskNotFound):
                known = None if row is None else result_of_row(key, row, alias)
                for each in () if known is None else fields(known):
                    object.__setattr__(result, each.name, getattr(known, each.name))
    return left


@operation
def submit(
    queues: Mapping[str, Sequence[engine.NewJob]],
    options: BackendOptions,
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
        for queue in sorted(queues):
            yield from hold_steps(options.project, queue, queues[queue])
    answers: dict[str, list[engine.Enqueued]] = {}
    for queue, jobs in batches:
        try:
            added = yield from _add(queue, jobs, options).steps()
        except QueueNotFound:
            yield from make_declared(options.project, queue, Definition(*options.declaration(queue)), options.database)
            added = yield from _add(queue, jobs, options).steps()
        answers.setdefault(queue, []).extend(added)
    return answers


def check_jobs(queues: Mapping[str, Sequence[engine.NewJob]], options: BackendOptions) -> None:
    """Refuse jobs that ``submit`` would refuse for what they are, without asking the database.

    Args:
        queues: the jobs of each queue.
        options: the backend's.

    Raises:
        InvalidOption: a job is not allowed.
    """
    for queue, jobs in _batches(queues):
        steps = _add(queue, [job._replace(limit=None) for job in jobs], options).steps()
        next(steps)  # what is given is checked before the first statement is asked for
        steps.close()


def _batches(queues: Mapping[str, Sequence[engine.NewJob]]) -> Iterator[tuple[str, Sequence[engine.NewJob]]]:
    size = conf.settings.MAX_ENQUEUE
    for queue, jobs in queues.items():
        for start in range(0, len(jobs), size):
            yield queue, jobs[start : start + size]


def _add(queue: str, jobs: Sequence[engine.NewJob], options: BackendOptions) -> engine.Operation[list[engine.Enqueued]]:
    return engine.enqueue(queue, jobs, project=options.project, create=False, fresh=True)
