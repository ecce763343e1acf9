"""The worker's handler for Django tasks: runs a job's task, judges its errors, sends its signals."""

from __future__ import annotations

import logging
import math
import traceback
from contextlib import suppress
from contextvars import Token
from dataclasses import replace
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from .. import engine, twins
from ..conf import process
from ..engine import Failure, LeasedJob, metadata
from ..engine.dead.fingerprint import fingerprint, text_of
from ..engine.jobs.steps import emit_end, result_event
from ..engine.limits import seconds_of
from ..exceptions import InvalidOption, LeaseLost, NotBegun, NotSerializable
from ..worker.atomic import atomic_run, check_ended, database_of
from ..worker.control import EndingName, GiveUp, JobControl, Retry
from ..worker.durable import Replaced
from ..worker.held import SUSPECT
from ..worker.undo import UndoFailed
from . import backoff as backoffs
from . import deadlines
from .api import DEFAULT_TASK_BACKEND_ALIAS, TaskResultStatus, task_backends
from .batch import BatchCall
from .batch_runs import BatchRuns
from .context import (
    LeaseQueueContext,
    ReplacementFailed,
    may_be_replaced,
    queue_database,
    replaced,
    resumed,
    running,
    with_inputs,
)
from .exceptions import UNREACHED, ContextNotRestored, FailForGood, RetryLater, TaskNotFound
from .isolation import IsolatedTaskFailed, can_isolate, run_isolated
from .lookup import TaskEntry, find_entry, number
from .payload import arguments_of, restored, result_json
from .signals import Announcer
from .task_class import LeaseQueueTask
from .undo import UndoBegun, Undone, to_undo, turn
from .unknown import UnknownTasks

logger = logging.getLogger("django_leasequeue.tasks")

_NO_TIMEOUT = (None, None)
#: Modules whose frames call the function of a task.
_FRAMES = (__name__, BatchCall.__module__)


class TaskHandler(BatchRuns):
    """Runs the jobs of tasks. One a process, called from many threads at once; see ``worker.control.Handler``.

    Args:
        project: the tenant whose jobs these are.
        inside: run isolated tasks here: this is their process, or that of a test.
    """

    #: A worker without ``--queues`` takes only what holds tasks.
    runs_tasks = True

    def __init__(self, project: str = "", *, inside: bool = False) -> None:
        self._entries: dict[tuple[str | None, str], TaskEntry] = {}
        #: Those of jobs without metadata, by their name alone.
        self._plain: dict[str | None, TaskEntry] = {}
        self._groups = {}
        self._announcer = Announcer(project)
        self.hears = self._announcer.has_receivers
        self._project = project
        self._inside = inside
        self._unknown = UnknownTasks()

    def is_async(self, job: LeasedJob) -> bool:
        try:
            entry = self._entry(job)
        except TaskNotFound:
            return False  # it fails in a thread
        return entry.is_async and (self._inside or not self._runs_apart(entry, job))

    def isolates(self) -> bool:
        """Return whether a suspect can have a process of its own now."""
        return can_isolate()

    @staticmethod
    def _runs_apart(entry: TaskEntry, job: LeasedJob) -> bool:
        return entry.isolate or (job.flags & SUSPECT > 0 and can_isolate())

    def timeout(self, job: LeasedJob, default: float | None = None) -> tuple[float | None, float | None]:
        try:
            entry = self._entry(job)
        except TaskNotFound:
            return _NO_TIMEOUT
        soft, grace, left = entry.timeout, entry.timeout_grace, None
        if soft is None and job.meta_json is None and default is None:
            return _NO_TIMEOUT
        if job.meta_json is not None and isinstance(entry.task, LeaseQueueTask):
            meta = self._meta(job)
            soft = soft if (called := number(meta, "timeout")) is None else called
            grace = grace if (called := number(meta, "timeout_grace")) is None else called
            left = deadlines.seconds_left(job)
        soft = (default if soft is None else soft) or None
        # After its deadline it does not start.
        if left is not None and 0 < left < (math.inf if soft is None else soft):
            soft = left
        if soft is None:
            return _NO_TIMEOUT
        return soft, None if grace is None else soft + (grace or math.inf)

    def run(self, job: LeasedJob, control: JobControl) -> str | None:
        entry, job = self._entry_to_run(job), job.loaded()
        token = running.set(control)
        tagging = None if job.meta_json is None else self._tagging(job)
        try:
            if job.meta_json is not None and deadlines.MARK in job.meta_json:
                twins.run(deadlines.begin(entry, job, control, self._project))
            telling = self._announcer.started(entry, job, control)
            # A coroutine function that comes to a thread does so to run apart.
            if not self._inside and (entry.is_async or self._runs_apart(entry, job)):
                return run_isolated(job, control, self._project, keep=not entry.isolate)
            with restored(job):
                if telling is not None:
                    twins.run(telling)
                try:
                    args, kwargs, marked = self._arguments(entry, job, control)
                    if marked is not None:
                        args = twins.run(with_inputs(entry, job, args, marked))
                    resumes = resumed(control, self._project)
                    if entry.atomic:
                        connections[database_of(control)].ensure_connection()
                except UNREACHED as error:
                    raise NotBegun(str(error)) from error
                # Reading the arguments may have taken longer than the lease.
                control.begin()
                if resumes is not None:
                    value = resumes()
                elif entry.atomic:
                    return self._in_transaction(entry, job, control, args, kwargs)
                else:
                    try:
                        value = entry.func(*args, **kwargs)
                        control.returned()
                    except Replaced as found:
                        value = replaced(control, found.call)
            return self._kept(entry, job, value)
        except BaseException as error:
            if (steps := to_undo(control, error, apart=not self._inside and self._runs_apart(entry, job))) is not None:
                turn(control, steps, error, self)
            raise
        finally:
            running.reset(token)
            if tagging is not None:
                metadata.inherited.reset(tagging)

    def _in_transaction(
        self, entry: TaskEntry, job: LeasedJob, control: JobControl, args: Any, kwargs: Any
    ) -> str | None:
        """Run a task and end its job in one transaction."""
        control.ends_in_transaction = True
        with atomic_run(control, f"the atomic task {entry.path}") as whole:
            try:
                value = entry.func(*args, **kwargs)
            except Replaced:
                raise InvalidOption(
                    f"{entry.path} is atomic and replaces itself: what it has done is not committed before its end."
                    " Make it a plain task."
                ) from None
            control.returned()
            check_ended(whole.using)
            whole.check(whole.read_mark())
            text = self._kept(entry, job, value)
            ending = engine.Ending(
                job.seq, job.token, result_json=text, body=control.result_body, result_ttl_ms=control.result_ttl_ms
            )
            settled = engine.run(engine.finish([ending], control.node, project=self._project), whole.using)
            if settled.outcomes[job.seq] is not engine.Outcome.OK:
                raise LeaseLost(job.key or job.seq)
        control.settled = True
        return text

    async def arun(self, job: LeasedJob, control: JobControl) -> str | None:
        entry, job = self._entry_to_run(job), await job.aloaded()
        token = running.set(control)
        tagging = None if job.meta_json is None else self._tagging(job)
        try:
            if job.meta_json is not None and deadlines.MARK in job.meta_json:
                await twins.arun(deadlines.begin(entry, job, control, self._project))
            with restored(job):
                if (telling := self._announcer.started(entry, job, control)) is not None:
                    await twins.arun(telling)
                try:
                    args, kwargs, marked = self._arguments(entry, job, control)
                    if marked is not None:
                        args = await twins.arun(with_inputs(entry, job, args, marked))
                    resumes = await sync_to_async(resumed)(control, self._project) if may_be_replaced(job) else None
                except UNREACHED as error:
                    raise NotBegun(str(error)) from error
                control.begin()
                if resumes is not None:
                    value = await sync_to_async(resumes)()
                else:
                    try:
                        value = await entry.func(*args, **kwargs)
                        control.returned()
                    except Replaced as found:
                        value = await sync_to_async(replaced)(control, found.call)
            return self._kept(entry, job, value)
        except BaseException as error:
            if (steps := to_undo(control, error)) is not None:
                await sync_to_async(turn)(control, steps, error, self)
            raise
        finally:
            running.reset(token)
            if tagging is not None:
                metadata.inherited.reset(tagging)

    def failed(self, job: LeasedJob, error: BaseException) -> tuple[Failure, Retry | GiveUp]:
        failure, verdict = self.judged(job, error)
        deadlines.forget(job)
        if isinstance(verdict, GiveUp) or isinstance(error, Undone) or 0 < job.max_deliveries <= job.deliveries:
            self._announcer.keep_error(job, error)
        return failure, verdict

    def judged(self, job: LeasedJob, error: BaseException) -> tuple[Failure, Retry | GiveUp]:
        """Return what ``failed`` does, and keep nothing."""
        if isinstance(error, IsolatedTaskFailed):
            return error.failed
        if isinstance(error, UndoBegun | Undone):
            return error.judged
        if isinstance(error, UndoFailed) and error.__cause__ is not None:
            failure, verdict = self.judged(job, error.__cause__)
            failure = replace(failure, message=f"{error}: {failure.message}")
            return failure, Retry() if isinstance(verdict, GiveUp) else verdict
        kind, shown = f"{type(error).__module__}.{type(error).__qualname__}", _traceback(error)
        if isinstance(error, ReplacementFailed):
            kind, shown = error.error_type, shown.replace(f"{kind}: ", f"{error.error_type}: ")
        failure = Failure(kind, text_of(error), shown, fingerprint(error, job.name or ""))
        verdict = self._verdict(job, error, failure)
        if isinstance(verdict, Retry) and (late := deadlines.too_late(job, verdict)) is not None:
            late.__cause__ = error
            return self.judged(job, late)
        return failure, verdict

    def settled(
        self,
        job: LeasedJob,
        ending: EndingName,
        *,
        result_json: str | None = None,
        failure: Failure | None = None,
        available_at: datetime | None = None,
    ) -> None:
        """Wake the task that a job has replaced, and send signals and log lines, for a stored ending."""
        if ending != "failing" and job.meta_json is not None and self._meta(job).get("awaited") is True:
            with suppress(TaskNotFound):
                database = queue_database(task_backends[self._entry(job).alias], job.queue)
                engine.run(emit_end(result_event(job.seq), project=self._project), database)
        if not self.hears(ending):
            return
        entry = None
        with suppress(TaskNotFound):
            entry = self._entry(job)
        self._announcer.settled(entry, job, ending, result_json, failure, available_at)

    def _entry_to_run(self, job: LeasedJob) -> TaskEntry:
        try:
            return self._entry(job)
        except TaskNotFound as error:
            if self._inside:
                raise
            raise self._unknown.judge(job, error) from error

    def _entry(self, job: LeasedJob) -> TaskEntry:
        if job.meta_json is None:
            found = self._plain.get(job.name)
            if found is None:
                found = self._plain[job.name] = find_entry(job.name)
            return found
        alias: Any = self._meta(job).get("backend", DEFAULT_TASK_BACKEND_ALIAS)
        if not isinstance(alias, str):
            raise TaskNotFound(f"The job's meta names {alias!r} as its backend, which is no alias.")
        found = self._entries.get((job.name, alias))
        if found is None:
            found = self._entries[job.name, alias] = find_entry(job.name, alias)
        return found

    @staticmethod
    def _meta(job: LeasedJob) -> dict[str, Any]:
        meta = job.meta
        return meta if isinstance(meta, dict) else {}

    def _kept(self, entry: TaskEntry, job: LeasedJob, value: Any) -> str | None:
        ignores = entry.ignore_result
        if job.meta_json is not None:
            deadlines.forget(job)
            ignores = self._meta(job).get("ignore_result", ignores)
        return None if value is None or ignores else result_json(entry.path, value)

    @staticmethod
    def _tagging(job: LeasedJob) -> Token[dict[str, Any] | None] | None:
        """Let jobs enqueued by this run inherit its tags; return the token of that, or ``None``."""
        own = metadata.noted(job.meta_json, metadata.TAGS)
        return None if own is None else metadata.inherited.set(own)

    def _arguments(self, entry: TaskEntry, job: LeasedJob, control: JobControl) -> tuple[Any, Any, Any]:
        args, kwargs, marked = arguments_of(job.data_json)
        control.keeps_slot, control.undoes_steps = entry.keeps_slot, True
        if entry.task.takes_context:
            result = self._announcer.result(entry, job, TaskResultStatus.RUNNING)
            args = [LeaseQueueContext(task_result=result, control=control), *args]
        return args, kwargs, marked

    def _verdict(self, job: LeasedJob, error: BaseException, failure: Failure) -> Retry | GiveUp:
        if isinstance(error, FailForGood | NotSerializable):
            return GiveUp()
        if isinstance(error, RetryLater) and error.delay is not None:
            return _retry(error.delay)
        try:
            entry = self._entry(job)
            if not isinstance(entry.task, LeaseQueueTask):
                return Retry()
            wanted = entry.task.autoretry_for
            unwanted = isinstance(error, entry.task.dont_retry_for) or not (wanted is None or isinstance(error, wanted))
            if unwanted and not isinstance(error, RetryLater | ContextNotRestored):
                return GiveUp()
            meta = self._meta(job)
            policy = backoffs.load(meta["backoff"]) if "backoff" in meta else entry.task.backoff
            policy = deadlines.queue_backoff(job) if policy is None else policy
            if policy is None:
                return Retry()
            if not callable(policy):
                return _retry(backoffs.fixed_delay(policy, job.deliveries))
            delay = policy(error, self._announcer.result(entry, job, TaskResultStatus.FAILED, failure))
            return GiveUp() if delay is None else _retry(seconds_of(delay, "the answer of a backoff function"))
        except TaskNotFound:
            return Retry()
        except BaseException as raised:
            if not process.outlives(raised):
                raise
            logger.exception("The backoff of task %s failed; its queue's is used instead.", job.name)
            return Retry()


def _retry(seconds: float) -> Retry:
    return Retry(int(min(seconds, backoffs.MAX_SECONDS) * 1000))


def _traceback(error: BaseException) -> str:
    """Return the traceback as text, without the worker's frames above the task's own function."""
    shown = step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_globals.get("__name__") in _FRAMES:
            shown = step.tb_next or step
            break
        step = step.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, shown))
    except BaseException as again:  # an exception that cannot be shown must not hide that the task failed
        if not process.outlives(again):
            raise
        return f"{type(error).__name__} (its traceback cannot be shown: {type(again).__name__})"
