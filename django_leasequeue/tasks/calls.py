"""Calls of tasks become jobs: the result and the job of a call, the steps that store it, keys that are taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, cast
from uuid import uuid4

from django.utils import timezone

from .. import conf, engine
from ..engine import codec, metadata
from ..engine.jobs.enqueue import enqueue_steps
from ..engine.jobs.results import status
from ..engine.jobs.unique import hold_steps
from ..engine.limits import MAX_BATCH, MAX_KEY_BYTES, check_text
from ..engine.operation import BEGIN, Steps, operation
from ..engine.queues.presets import Definition
from ..engine.queues.queues import make_declared
from ..engine.rows import END, PLAIN, TAG
from ..exceptions import QueueNotFound
from . import backoff as backoffs
from .api import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskResult
from .arguments import UnresolvedInput, is_about_key, limit_of_call, unique_fields
from .context import replacing
from .decorator import LeaseQueueTask
from .exceptions import TaskNotFound
from .lookup import ResultRow, find_row, result_of_row
from .options import BackendOptions
from .results import json_arguments, local, new_result, note_stored, show_decoded

_ID_END = engine.NewJob._fields.index("id_end")


class TaskCalls:
    """Calls of one task: what all of them have in common is computed once."""

    __slots__ = ("_after", "_backend", "_before", "_is_keyed", "_is_limited", "_task", "is_plain")

    def __init__(self, task: Task[..., Any], backend: str, common_tags: dict[str, Any] | None = None) -> None:
        self._task, self._backend = task, backend
        expires: float | None = getattr(task, "expires", None)
        run_at: datetime | None = task.run_after
        if run_at is not None and timezone.is_naive(run_at):
            run_at = timezone.make_aware(run_at)
        # Metadata: what the worker and readers of the result must know and do not find on the declared task.
        meta: dict[str, Any] = {}
        if run_at is not None:
            meta["run_after"] = run_at.astimezone(UTC).isoformat()
        meta |= replacing.get() or {}
        if backend != DEFAULT_TASK_BACKEND_ALIAS:
            meta["backend"] = backend
        changed = task.changed if isinstance(task, LeaseQueueTask) else ()
        meta |= {name: getattr(task, name) for name in ("timeout", "ignore_result") if name in changed}
        if "backoff" in changed:
            meta["backoff"] = backoffs.dump(cast("Any", task).backoff)
        common = engine.NewJob(
            name=task.module_path,
            # Django takes 5.0 for 5.
            priority=int(task.priority) or None,
            meta=meta or None,
            run_at=run_at,
            max_deliveries=task.max_attempts if isinstance(task, LeaseQueueTask) else None,
            ttl_ms=None if expires is None else round(expires * 1000),
            tags=metadata.with_inherited({**(common_tags or {}), **(getattr(task, "tags", None) or {})} or None),
        )
        # Of a tuple's parts another one is made faster than by names.
        self._before, self._after = common[1:_ID_END], common[_ID_END + 1 :]
        self._is_keyed = isinstance(task, LeaseQueueTask) and is_about_key(task)
        self._is_limited = getattr(task, "limit", None) is not None
        #: Whether the jobs of its calls differ in nothing but their ids and arguments.
        self.is_plain = common[TAG:END] == PLAIN and not (self._is_keyed or self._is_limited)
        check_text(task.module_path, "name", MAX_KEY_BYTES)

    def prepare(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], id_end: str, inputs: dict[str, bool] | None = None
    ) -> tuple[TaskResult[Any], engine.NewJob]:
        """Return the result and the job of one call; with ``inputs`` jobs before it give its first argument."""
        task = self._task
        args, kwargs = json_arguments(task, args, kwargs, 0 if inputs is None else 1)
        result = new_result(task, args, kwargs, self._backend)
        # As text, which the garbage collector does not look at: of many calls there would be many dicts for it.
        text = written(args, kwargs, inputs)
        job = tuple.__new__(engine.NewJob, (text and codec.JsonText(text), *self._before, id_end, *self._after))
        known = args if inputs is None else [UnresolvedInput(), *args]
        if self._is_keyed:
            job = job._replace(**unique_fields(cast("Any", task), known, kwargs))
        if self._is_limited:
            job = job._replace(limit=limit_of_call(task, known, kwargs))
        if conf.settings.TASK_CODECS:
            show_decoded(result)
        return result, job


def written(args: list[Any], kwargs: dict[str, Any], inputs: dict[str, bool] | None = None) -> str | None:
    """Return the JSON of a call's arguments, ``None`` where there are none."""
    data: dict[str, Any] = {} if inputs is None else {"inputs": inputs}
    if args:
        data["args"] = args
    if kwargs:
        data["kwargs"] = kwargs
    return codec.dumps(data) if data else None


class Calls(NamedTuple):
    """Calls for one queue that are about to be stored, in order: results for the caller, jobs for the database."""

    results: list[TaskResult[Any]]
    jobs: list[engine.NewJob]

    def with_known_ids(self) -> Calls:
        """Return the calls with ids that are known before they are stored; their results have them."""
        jobs = [job._replace(id_end=None, key=str(uuid4())) for job in self.jobs]
        for result, job in zip(self.results, jobs, strict=True):
            object.__setattr__(result, "id", job.key)
        return self._replace(jobs=jobs)


#: Calls by their queues.
Queues = dict[str, Calls]


class Taken(NamedTuple):
    """A call whose key is taken, and the number of the job that has it."""

    queue: str
    result: TaskResult[Any]
    job: engine.NewJob
    seq: int


def store_steps(queues: Queues, options: BackendOptions) -> Steps[list[engine.Enqueued]]:
    """Add jobs to queues of one database, all or none, and make what is missing; return the answers in order."""
    size = conf.settings.MAX_ENQUEUE
    batches = [
        (queue, calls.jobs[start : start + size])
        for queue, calls in queues.items()
        for start in range(0, len(calls.jobs), size)
    ]
    if len(batches) > 1:
        yield BEGIN, {}
        for queue in sorted(queues):
            yield from hold_steps(options.project, queue, queues[queue].jobs)
    answers: list[engine.Enqueued] = []
    for queue, jobs in batches:
        add = partial(enqueue_steps, queue, jobs, project=options.project, create=False, fresh=True)
        try:
            answers += yield from add()
        except QueueNotFound:
            yield from make_declared(options.project, queue, Definition(*options.declaration(queue)), options.database)
            answers += yield from add()
    return answers


def note_answers(queues: Queues, answers: Sequence[engine.Enqueued]) -> list[Taken]:
    """Note the ids and times of new jobs on their results; return the calls whose keys are taken."""
    taken: list[Taken] = []
    following = iter(answers)
    at, shown = None, None
    for queue, calls in queues.items():
        for result, job, (seq, state, _, created_at) in zip(*calls, following, strict=False):
            if state is not engine.EnqueueStatus.QUEUED:
                taken.append(Taken(queue, result, job, seq))
                continue
            if created_at is not at:  # those of one statement have one object
                at, shown = created_at, local(created_at)
            note_stored(result, None if job.id_end is None else engine.make_id(seq, job.id_end), shown)
    return taken


@operation
def find_taken(taken: Sequence[Taken], project: str) -> Steps[dict[int, tuple[str, ResultRow | None]]]:
    """Read, by number, id and row of the results of the jobs that hold the keys of calls, if they are still there."""
    found: dict[int, tuple[str, ResultRow | None]] = {}
    for queue in dict.fromkeys(call.queue for call in taken):
        seqs = list(dict.fromkeys(call.seq for call in taken if call.queue == queue))
        for start in range(0, len(seqs), MAX_BATCH):
            rows = yield from status(queue, seqs=seqs[start : start + MAX_BATCH], project=project).steps()
            for row in rows:
                if row.key is not None:
                    found[row.seq] = row.key, (yield from find_row(row.key, project).steps())
    return found


def note_taken(taken: Sequence[Taken], found: Mapping[int, tuple[str, ResultRow | None]], alias: str) -> Queues:
    """Make the results of calls whose keys were taken those that are there; return calls whose keys are free now."""
    left: Queues = {}
    for queue, result, job, seq in taken:
        if seq not in found:
            free = left.setdefault(queue, Calls([], []))
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


def check_jobs(queue: str, jobs: Sequence[engine.NewJob], options: BackendOptions) -> None:
    """Refuse jobs (``InvalidOption``) that ``store_steps`` would refuse for what they are, without the database."""
    size = conf.settings.MAX_ENQUEUE
    for start in range(0, len(jobs), size):
        unlimited = [job._replace(limit=None) for job in jobs[start : start + size]]
        steps = enqueue_steps(queue, unlimited, project=options.project, create=False, fresh=True)
        next(steps)  # what is given is checked before the first statement is asked for
        steps.close()
