"""Signals and log lines of tasks: Django's task signals, those of ``django_leasequeue.signals``, Django's log.

All are sent robustly: a receiver that raises is logged and changes nothing of what becomes of a job. Django itself
connects one receiver to each of its signals, which writes a log line. Where it is the only one, it is called directly:
without other receivers no ``TaskResult`` is built.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from django.dispatch import Signal

from .. import signals as job_signals
from ..conf import process
from ..conf.loglines import contained
from ..engine import Failure, LeasedJob, clock, codec
from ..twins import Body, Either, either
from ..worker.edge import call_apart
from .api import TASKS_LOGGER, TaskResult, TaskResultStatus, task_signals
from .lookup import TaskEntry, make_result
from .task_class import called_back
from .undo import Undone

if TYPE_CHECKING:
    from ..worker.control import EndingName, JobControl

_logger = logging.getLogger(TASKS_LOGGER)


@dataclass(frozen=True, slots=True)
class TaskSignal:
    """One of Django's task signals, with the receiver of Django's own that writes its log line."""

    signal: Signal
    log: Callable[..., None]
    level: int

    def is_heard(self, level: int | None = None) -> bool:
        """Return whether there is any receiver; Django's own counts if its line is written (see ``is_logged``)."""
        receivers = self.signal.receivers
        if len(receivers) == 1 and receivers[0][0][0] == id(self.log):
            return _logger.isEnabledFor(self.level if level is None else level)
        return bool(receivers)

    def has_receivers(self) -> bool:
        """Return whether there is a receiver beside Django's own: only then is a ``TaskResult`` needed."""
        receivers = self.signal.receivers
        return len(receivers) > 1 or (len(receivers) == 1 and receivers[0][0][0] != id(self.log))

    def is_logged(self, level: int | None = None) -> bool:
        """Return whether Django's log line is written at this level; ``None``: at the signal's own."""
        return _logger.isEnabledFor(self.level if level is None else level) and bool(self.signal.receivers)

    def sending(self, sender: type, result: TaskResult[Any]) -> Either:
        """Return the step that sends the signal to all receivers; Django logs their errors."""
        about: dict[str, Any] = {"sender": sender, "task_result": result}
        return _telling(partial(self.signal.send_robust, **about), partial(self.signal.asend_robust, **about))


_RAISED = "A receiver of a task's signal raised"


def _telling(send: Callable[[], object], asend: Callable[[], Awaitable[object]]) -> Either:
    """Return the step that sends a signal: Django lets through what receivers raise that is no Exception."""

    def say() -> None:
        with contained(job_signals.logger, _RAISED):
            send()

    async def asay() -> None:
        try:
            await asend()
        except BaseException as error:
            if isinstance(error, CancelledError) or not process.outlives(error):  # the job's own
                raise
            job_signals.logger.exception(_RAISED)

    return either(say, asay)


def _task_signal(name: str, level: int) -> TaskSignal:
    return TaskSignal(getattr(task_signals, f"task_{name}"), getattr(task_signals, f"log_task_{name}"), level)


enqueued = _task_signal("enqueued", logging.DEBUG)
started = _task_signal("started", logging.INFO)
finished = _task_signal("finished", logging.INFO)


_OURS = {
    "completed": job_signals.completed,
    "failed": job_signals.failed,
    "failing": job_signals.failing,
    "dead": job_signals.failed,
}
#: Endings that Django's signal tells of: the level of its log line, the status of the result.
_FINISHED = {
    "completed": (logging.INFO, TaskResultStatus.SUCCESSFUL),
    "failed": (logging.ERROR, TaskResultStatus.FAILED),
    "dead": (logging.ERROR, TaskResultStatus.FAILED),
}

#: Errors that wait for the signal at most. Those of jobs whose lease was lost meanwhile are never fetched.
_MAX_KEPT = 256


def _log_line(entry: TaskEntry, job: LeasedJob, status: TaskResultStatus) -> SimpleNamespace:
    """Return the part of a ``TaskResult`` that Django's log lines use."""
    return SimpleNamespace(task=entry.task, id=job.key or "", status=status, backend=entry.alias)


class Announcer:
    """Sends the signals of task runs: one a process, called from many threads."""

    def __init__(self, project: str) -> None:
        self._project = project
        self._node = ""
        self._errors: dict[tuple[int, int], BaseException] = {}

    def started(self, entry: TaskEntry, job: LeasedJob, control: JobControl) -> Body[None] | None:
        """Return the body that announces a run, ``None`` without a receiver or a log line."""
        self._node = control.node
        return self._tell_started(entry, job, control) if self.hears_starts() else None

    @staticmethod
    def hears_starts() -> bool:
        """Return whether starts have a receiver or a log line."""
        return bool(job_signals.started.receivers) or started.is_heard()

    def _tell_started(self, entry: TaskEntry, job: LeasedJob, control: JobControl) -> Body[None]:
        if job_signals.started.receivers:
            about = {"sender": entry.task, **job_signals.about(job, self._project), "job": job, "node": control.node}
            sending = partial(job_signals.send, job_signals.started, **about)
            yield _telling(sending, partial(job_signals.started.asend_robust, **about))
        if started.has_receivers():
            yield started.sending(entry.sender, self.result(entry, job, TaskResultStatus.RUNNING))
        elif started.is_logged():
            started.log(sender=entry.sender, task_result=_log_line(entry, job, TaskResultStatus.RUNNING))

    def keep_error(self, job: LeasedJob, error: BaseException) -> None:
        """Keep a task's last error until its end is stored: receivers find it as the current exception."""
        if not self.has_receivers("failed"):
            return
        if len(self._errors) >= _MAX_KEPT:
            self._errors.pop(next(iter(self._errors), (0, 0)), None)
        self._errors[job.seq, job.token] = error

    def has_receivers(self, ending: EndingName) -> bool:
        """Return whether an ending has a receiver or a log line."""
        if ending == "failing":
            return bool(_OURS[ending].receivers)
        return bool(_OURS[ending].receivers) or bool(called_back) or finished.is_heard(_FINISHED[ending][0])

    def settled(
        self,
        entry: TaskEntry | None,
        job: LeasedJob,
        ending: EndingName,
        result_json: str | None,
        failure: Failure | None,
        available_at: datetime | None,
    ) -> None:
        """Send that the end of a run has been stored; of a task that is not found here only our own signals."""
        error = self._errors.pop((job.seq, job.token), None)
        if _OURS[ending].receivers:
            more: dict[str, Any] = {"failure": failure}
            if ending == "completed":
                more = {"result": None if result_json is None else codec.loads(result_json)}
            elif ending == "failing":
                more["available_at"] = available_at
            sender = None if entry is None else entry.task
            job_signals.send(_OURS[ending], sender, **job_signals.about(job, self._project), job=job, **more)
        if ending == "failing" or entry is None:
            return
        level, status = _FINISHED[ending]
        callback = getattr(entry.task, "on_success" if ending == "completed" else "on_failure", None)
        tells = finished.has_receivers()
        if tells or callback is not None:
            again = error.repeats if isinstance(error, Undone) else None
            records = [record for record in job.errors if again is None or record.get("deliveries") != again]
            value = None if result_json is None else codec.loads(result_json)
            ended = {"value": value, "finished_at": clock.now(), "records": records}
            result = self.result(entry, job, status, failure, **ended)
            if tells:
                with contained(job_signals.logger, _RAISED):
                    _within(error, lambda: finished.signal.send_robust(sender=entry.sender, task_result=result))
            if callback is not None:
                _within(error, lambda: _call(callback, result))
        if not tells and finished.is_logged(level):
            line = _log_line(entry, job, status)
            _within(error, lambda: finished.log(sender=entry.sender, task_result=line))

    def result(
        self, entry: TaskEntry, job: LeasedJob, status: TaskResultStatus, failure: Failure | None = None, **ended: Any
    ) -> TaskResult[Any]:
        """Return the result of a task that runs, or whose attempt has just ended."""
        data, meta = job.data, job.meta if job.meta_json is not None else None
        declared = getattr(entry.task, "max_attempts", None)
        return make_result(
            entry.task,
            job.key or "",
            status,
            meta=meta if isinstance(meta, dict) else {},
            data=data if isinstance(data, dict) else None,
            backend=entry.alias,
            queue=job.queue,
            priority=-job.rank,
            # A job has its queue's limit where neither its task nor using() names one.
            max_attempts=None if declared is None else job.max_deliveries,
            failure=failure,
            node=self._node,
            attempts=job.deliveries,
            enqueued_at=job.created_at,
            started_at=job.first_claimed_at,
            last_attempted_at=job.claimed_at,
            **{"records": job.errors, **ended},
        )


def _call(callback: Any, result: TaskResult[Any]) -> None:
    """Call ``on_success`` or ``on_failure`` of a task; log its error, also where it would end the process."""
    path = result.task.module_path
    try:
        call_apart(lambda: callback(result), f"A callback of task {path}")
    except BaseException as error:
        if not process.outlives(error, (Exception, SystemExit)):
            raise
        _logger.exception("A callback of task %s raised: %r", path, callback)


def _within(error: BaseException | None, call: Any) -> None:
    """Call with ``error`` as the current exception, as Django's own backends do when a task has failed."""
    if error is None:
        call()
        return
    trace = error.__traceback__
    try:
        raise error
    except BaseException:  # noqa: BLE001  (it is the task's own, raised again only to be the current one)
        call()
    error.__traceback__ = trace  # it may be the error of other jobs, too
