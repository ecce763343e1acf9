"""Calls of tasks become jobs: compile, store, fill the results, and resolve duplicate keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, timedelta
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, cast
from uuid import uuid4

from django.utils import timezone

from .. import conf, engine, signals
from ..conf import process
from ..engine import codec, metadata
from ..engine.jobs.enqueue import enqueue_steps
from ..engine.jobs.new_jobs import check_job
from ..engine.jobs.results import status
from ..engine.jobs.uniform import MOST, Shared, most_characters, one_steps, shared_of, uniform_steps
from ..engine.jobs.unique import hold_steps
from ..engine.limits import MAX_BATCH
from ..engine.operation import BEGIN, Statements, operation
from ..engine.queues.presets import Definition
from ..engine.queues.queues import make_declared
from ..exceptions import QueueNotFound
from . import backoff as backoffs
from . import deadlines
from .api import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskResult
from .arguments import UnresolvedInput, is_about_key, limit_of_call, unique_fields
from .context import replacing
from .exceptions import TaskNotFound
from .lookup import ResultRow, find_row, result_of_row
from .options import BackendOptions
from .results import (
    json_arguments,
    local,
    new_end,
    new_ends,
    new_result,
    new_results,
    note_delay,
    note_stored,
    show_decoded,
)
from .task_class import Call, LeaseQueueTask

_ID_END = engine.NewJob._fields.index("id_end")


class CallCompiler:
    """Makes results and jobs of one task's calls; what the calls have in common is computed once."""

    __slots__ = ("_after", "_backend", "_before", "_is_keyed", "_is_limited", "_task", "shared")

    def __init__(self, task: Task[..., Any], backend: str, common_tags: dict[str, Any] | None = None) -> None:
        self._task, self._backend = task, backend
        expires: float | None = getattr(task, "expires", None)
        # A delay is the database's to count: this machine's clock may be another one, or frozen by a test.
        delay: timedelta | None = None if task.run_after is None else getattr(task, "run_delay", None)
        delay_ms = None if delay is None else round(delay / timedelta(milliseconds=1))
        run_at = task.run_after if delay is None else None
        if run_at is not None and timezone.is_naive(run_at):
            run_at = timezone.make_aware(run_at)
        # Metadata: what the worker and readers of the result must know and do not find on the declared task.
        meta: dict[str, Any] = {}
        if run_at is not None:
            meta["run_after"] = run_at.astimezone(UTC).isoformat()
        if delay_ms is not None:
            meta["delay_ms"] = delay_ms
        meta |= replacing.get() or {}
        if backend != DEFAULT_TASK_BACKEND_ALIAS:
            meta["backend"] = backend
        changed = task.changed if isinstance(task, LeaseQueueTask) else ()
        kept = ("timeout", "timeout_grace", "ignore_result")
        meta |= {name: getattr(task, name) for name in kept if name in changed} | deadlines.noted(task)
        if "backoff" in changed:
            meta["backoff"] = backoffs.dump(cast("Any", task).backoff)
        common = engine.NewJob(
            name=task.module_path,
            # Django takes 5.0 for 5.
            priority=int(task.priority) or None,
            meta=meta or None,
            run_at=run_at,
            delay_ms=None if delay_ms is None else max(0, delay_ms),
            max_deliveries=task.max_attempts if isinstance(task, LeaseQueueTask) else None,
            ttl_ms=None if expires is None else round(expires * 1000),
            tags=metadata.with_inherited({**(common_tags or {}), **(getattr(task, "tags", None) or {})} or None),
        )
        # Of a tuple's parts another one is made faster than by names.
        self._before, self._after = common[1:_ID_END], common[_ID_END + 1 :]
        self._is_keyed = isinstance(task, LeaseQueueTask) and is_about_key(task)
        self._is_limited = getattr(task, "limit", None) is not None
        check_job(common)
        #: What the jobs of its calls have in common where they differ in nothing but ids and arguments.
        self.shared: Shared | None = None if self._is_keyed or self._is_limited else shared_of(common)

    def prepare(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        id_end: str,
        inputs: dict[str, bool] | None = None,
        context: dict[str, Any] | None = None,
    ) -> tuple[TaskResult[Any], engine.NewJob]:
        """Return the result and the job of one call; with ``inputs`` jobs before it give its first argument.

        ``context``: what ``payload.capture`` returns, which the job carries.
        """
        task = self._task
        args, kwargs = json_arguments(task, args, kwargs, 0 if inputs is None else 1)
        result = new_result(task, args, kwargs, self._backend)
        # As text, which the garbage collector does not look at: of many calls there would be many dicts for it.
        text = dump_call(args, kwargs, inputs)
        job = tuple.__new__(engine.NewJob, (text and codec.JsonText(text), *self._before, id_end, *self._after))
        known = args if inputs is None else [UnresolvedInput(), *args]
        if self._is_keyed:
            job = job._replace(**unique_fields(cast("Any", task), known, kwargs))
        if self._is_limited:
            job = job._replace(limit=limit_of_call(task, known, kwargs))
        if context is not None:
            job = job._replace(meta=metadata.Noted({**(job.meta or {}), metadata.CONTEXT: context}))
        if conf.settings.TASK_CODECS:
            show_decoded(result)
        return result, job


def dump_call(args: list[Any], kwargs: dict[str, Any], inputs: dict[str, bool] | None = None) -> str | None:
    """Return the JSON of a call's arguments, ``None`` where there are none."""
    data: dict[str, Any] = {} if inputs is None else {"inputs": inputs}
    if args:
        data["args"] = args
    if kwargs:
        data["kwargs"] = kwargs
    return codec.dumps(data) if data else None


class QueueBatch(NamedTuple):
    """Calls of tasks in one queue, to be stored in order: results for the caller, jobs for the database."""

    results: list[TaskResult[Any]]
    jobs: list[engine.NewJob]

    def with_known_ids(self) -> QueueBatch:
        """Return the batch with ids that are known before it is stored; its results have them."""
        jobs = [job._replace(id_end=None, key=str(uuid4())) for job in self.jobs]
        for result, job in zip(self.results, jobs, strict=True):
            object.__setattr__(result, "id", job.key)
        return self._replace(jobs=jobs)


#: Calls by the names of their queues.
Batches = dict[str, QueueBatch]


class DuplicateCall(NamedTuple):
    """A call whose key another job has, and the number of that job."""

    queue: str
    result: TaskResult[Any]
    job: engine.NewJob
    seq: int


def may_be_uniform() -> bool:
    """Return whether nothing needs each job by itself: codecs, captured context, large payloads, traces, signals."""
    settings = conf.settings
    needed = settings.TASK_CODECS or settings.CONTEXT.CAPTURE or settings.LARGE.ABOVE is not None
    return not (needed or signals.enqueued.receivers or metadata.begin_trace is not None)


@operation
def store_one(options: BackendOptions, backend: str, shared: Shared, call: Call) -> Statements[TaskResult[Any] | None]:
    """Add the job of a call, and return its result; ``None``: only ``store_calls`` can do it; nothing was added."""
    task = call[0]
    args, kwargs = json_arguments(*call)
    data = dump_call(args, kwargs)
    if len(data or "") > most_characters(shared, conf.settings.MAX_PAYLOAD_BYTES):
        return None
    end = new_end()
    added = yield from one_steps((options.project, task.queue_name), shared, end, data)
    if added is None:
        return None
    seq, now = added
    return new_result(task, args, kwargs, backend, engine.make_id(seq, end), local(now))


@operation
def store_many(
    options: BackendOptions, backend: str, shared: Shared, calls: Sequence[Call]
) -> Statements[list[TaskResult[Any]] | None]:
    """Add the jobs of a task's calls, all or none; see ``store_one``."""
    task = calls[0][0]
    most = most_characters(shared, conf.settings.MAX_PAYLOAD_BYTES)
    with process.collector_paused():  # the results live on: it would find nothing
        arguments = [json_arguments(*call) for call in calls]
        datas = [dump_call(args, kwargs) for args, kwargs in arguments]
        if any(len(data or "") > most for data in datas):
            return None
    yield BEGIN, {}
    results: list[TaskResult[Any]] = []
    for start in range(0, len(calls), MOST):
        part = datas[start : start + MOST]
        ends = list(islice(new_ends(), len(part)))
        added = yield from uniform_steps(
            (options.project, task.queue_name), shared, part, ends, generated=True, held=start > 0
        )
        if added is None:
            if start:  # what is there already must not stay
                raise QueueNotFound(task.queue_name, options.project)
            return None
        with process.collector_paused():
            results += new_results(task, arguments[start : start + MOST], backend, added.keys, local(added.at))
    return results


@operation
def store_calls(batches: Batches, options: BackendOptions) -> Statements[list[engine.Enqueued]]:
    """Add jobs to queues of one database, all or none, and make what is missing; return the answers in order."""
    size = conf.settings.MAX_ENQUEUE
    parts = [
        (queue, batch.jobs[start : start + size])
        for queue, batch in batches.items()
        for start in range(0, len(batch.jobs), size)
    ]
    if len(parts) > 1:
        yield BEGIN, {}
        for queue in sorted(batches):
            yield from hold_steps(options.project, queue, batches[queue].jobs)
    answers: list[engine.Enqueued] = []
    for queue, jobs in parts:
        add = partial(enqueue_steps, queue, jobs, project=options.project, create=False, fresh=True)
        try:
            answers += yield from add()
        except QueueNotFound:
            yield from make_declared(
                options.project, queue, Definition(*options.declaration(queue)), options.database, tasks=True
            )
            answers += yield from add()
    return answers


def fill_results(batches: Batches, answers: Sequence[engine.Enqueued]) -> list[DuplicateCall]:
    """Give results the ids and times of their new jobs; return the calls whose keys other jobs have."""
    duplicates: list[DuplicateCall] = []
    following = iter(answers)
    at, shown = None, None
    for queue, batch in batches.items():
        for result, job, (seq, state, _, created_at) in zip(*batch, following, strict=False):
            if state is not engine.EnqueueStatus.QUEUED:
                duplicates.append(DuplicateCall(queue, result, job, seq))
                continue
            if created_at is not at:  # those of one statement have one object
                at, shown = created_at, local(created_at)
            note_stored(result, None if job.id_end is None else engine.make_id(seq, job.id_end), shown)
            if job.delay_ms is not None:
                note_delay(result)
    return duplicates


@operation
def find_existing(
    duplicates: Sequence[DuplicateCall], project: str
) -> Statements[dict[int, tuple[str, ResultRow | None]]]:
    """Read the jobs that have the keys of calls: by number, the id and the row of the result. Some may be gone."""
    found: dict[int, tuple[str, ResultRow | None]] = {}
    for queue in dict.fromkeys(call.queue for call in duplicates):
        seqs = list(dict.fromkeys(call.seq for call in duplicates if call.queue == queue))
        for start in range(0, len(seqs), MAX_BATCH):
            rows = yield from status(queue, seqs=seqs[start : start + MAX_BATCH], project=project)
            for row in rows:
                if row.key is not None:
                    found[row.seq] = row.key, (yield from find_row(row.key, project))
    return found


def adopt_existing(
    duplicates: Sequence[DuplicateCall], found: Mapping[int, tuple[str, ResultRow | None]], alias: str
) -> Batches:
    """Point duplicate calls at the existing job's result; return the calls whose keys are free by now."""
    left: Batches = {}
    for queue, result, job, seq in duplicates:
        if seq not in found:
            free = left.setdefault(queue, QueueBatch([], []))
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
    """Refuse jobs (``InvalidOption``) that ``store_calls`` would refuse whatever the database holds."""
    size = conf.settings.MAX_ENQUEUE
    for start in range(0, len(jobs), size):
        unlimited = [job._replace(limit=None) for job in jobs[start : start + size]]
        steps = enqueue_steps(queue, unlimited, project=options.project, create=False, fresh=True)
        next(steps)  # validates before the first statement
        steps.close()
