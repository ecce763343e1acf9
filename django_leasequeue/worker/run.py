"""One run of a job: its slot, its timeouts, the meaning of its end."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ..conf import process
from ..conf.loglines import about
from ..engine import Failure, LeasedJob
from ..engine.dead.fingerprint import text_of
from ..exceptions import NotBegun
from ..notify.alarms import Alarm
from .control import GiveUp, Handler, JobAborted, JobControl, JobTimeout, Retry

_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)
_set_async_exc.restype = ctypes.c_int
_NULL: Any = ctypes.py_object()

logger = logging.getLogger("django_leasequeue.worker")

#: Packages whose frames are above those of a job in its traceback.
_FRAMES = ("django_leasequeue", "asyncio", "asgiref", "contextlib", "opentelemetry")
#: Reasons to stop that are not the job's fault.
_STOP_REASONS = ("stopping", "lease_lost", "cancelled")
#: How runs end, for the acknowledger.
COMPLETED, FAILED, RETRY, UNSTARTED, STOPPED, SUSPENDED = range(6)
#: (how it ended, the job, its control, the result as JSON or the failure, the delay of a retry in ms)
Entry = tuple[int, LeasedJob, JobControl | None, Any, int | None]


class RunAlarm:
    """The soft and the hard timeout of one run in the event loop, in seconds after ``since``."""

    __slots__ = ("_hard", "_soft", "control", "hard_at", "soft_at")

    def __init__(self, control: JobControl, since: float, soft: float | None, hard: float | None, grace: float) -> None:
        self.control = control
        if hard is None and soft is not None and grace:
            hard = soft + grace
        self._soft = math.inf if soft is None else soft
        self._hard = math.inf if hard is None else hard
        self.start(since)

    def start(self, since: float) -> None:
        """Start the timeouts at a time (monotonic); infinity: not yet."""
        self.soft_at = since + self._soft
        self.hard_at = since + self._hard

    def fire(self) -> None:
        """Abort the run, from any thread, unless it has ended."""
        self.control.abort("timeout")
        if (abort := self.control.on_lost) is not None:
            with suppress(RuntimeError):  # its loop is closed
                abort()

    def leave(self) -> bool:
        """Give up the run, from any thread; return False if it has ended first."""
        return True  # a task has no thread to lose; if it ends at this moment its job runs again


class ThreadAlarm(RunAlarm):
    """The timeouts of one run in a thread: raises ``JobTimeout`` into it, at most once, and never after the run.

    The first side to take the only token wins: the thread when the run ends, the timekeeper at the timeout.
    """

    __slots__ = ("_fired", "_slot_token", "_thread", "_token", "slot")

    def __init__(self, slot: Slot, control: JobControl, soft: float | None, hard: float | None, grace: float) -> None:
        super().__init__(control, slot.since, soft, hard, grace)
        self.slot = slot
        self._thread = threading.get_ident()
        self._token = [True]
        #: Decides who keeps the slot: the thread that ends its run, or the one that replaces it.
        self._slot_token = [True]
        self._fired = False

    def fire(self) -> None:
        try:
            self._token.pop()
        except IndexError:
            return
        self.control.abort("timeout")
        _set_async_exc(self._thread, ctypes.py_object(JobTimeout))
        self._fired = True

    def end(self) -> None:
        """End the alarm with its run, in the thread itself; may raise a timeout that has just come."""
        try:
            self._token.pop()
        except IndexError:
            while not self._fired:
                time.sleep(0)
            # Clears an exception that has not been raised yet.
            _set_async_exc(self._thread, _NULL)

    def leave(self) -> bool:
        with suppress(IndexError):
            return self._slot_token.pop()
        return False


class Timekeeper:
    """Watches the timeouts of runs. The main thread calls ``check``, threads of jobs the rest."""

    def __init__(self, main: Alarm, recycle: Callable[[str], None]) -> None:
        self._main, self._recycle = main, recycle
        #: Gives up a run that outlives its hard timeout; ``None``: the process is replaced.
        self.abandon_run: Callable[[RunAlarm], None] | None = None
        self._alarms: dict[int, RunAlarm] = {}
        #: When ``check`` is to be called next (monotonic).
        self.next_at = math.inf
        #: Jobs past their hard timeout: only the end of the process ends them.
        self.overdue: list[LeasedJob] = []

    def expect(self, alarm: RunAlarm) -> None:
        self._alarms[id(alarm)] = alarm
        at = min(alarm.soft_at, alarm.hard_at)
        if at < self.next_at:
            self.next_at = at
            self._main.wake()

    def forget(self, alarm: RunAlarm) -> None:
        self._alarms.pop(id(alarm), None)

    def check(self) -> None:
        """Abort runs past their soft timeout; at the hard one end the process, or give up the run."""
        now = time.monotonic()
        self.next_at = math.inf
        for alarm in list(self._alarms.values()):
            jobs = [control.job for control in alarm.control.members or (alarm.control,)]
            job = jobs[0]
            if alarm.soft_at <= now:
                alarm.soft_at = math.inf
                logger.warning("Job timed out", extra=about(job))
                alarm.fire()
            if alarm.hard_at <= now:
                alarm.hard_at = math.inf
                if self.abandon_run is not None:
                    self.abandon_run(alarm)
                    continue
                self.overdue.extend(jobs)
                self._recycle(f"job {job.seq} ({job.name}) outlived its hard timeout")
        # A concurrent `expect` is kept: this only lowers the time.
        for alarm in list(self._alarms.values()):
            self.next_at = min(self.next_at, alarm.soft_at, alarm.hard_at)


@dataclass(slots=True, eq=False)
class Slot:
    """The current job of one thread, and since when (monotonic). Only that thread changes it."""

    #: Its slot in the journal.
    number: int
    control: JobControl | None = None
    since: float = 0.0
    #: The run was given up, and another thread has the slot: this one ends.
    left: bool = False


def failed(handler: Handler, job: LeasedJob, control: JobControl | None, error: BaseException) -> Entry:
    """Let the handler decide about an error; an error of the handler itself becomes the failure.

    A job that the end of its worker or its lease has stopped is released without a failure; so is one that could not
    begin because its payload or its database was out of reach. One that sleeps or waits for an event is suspended.
    """
    if control is not None and control.suspension is not None:
        return (SUSPENDED, job, control, None, control.suspension.delay_ms)
    if control is not None and (
        (control.reason in _STOP_REASONS and isinstance(error, JobAborted))
        or (control.reason in ("lease_lost", "cancelled") and isinstance(error, asyncio.CancelledError))
    ):
        return (STOPPED, job, control, None, 0)
    if isinstance(error, NotBegun):
        if not error.is_logged:
            logger.warning("A job cannot begin and is given back: %s", error, extra={"seq": job.seq})
        return (UNSTARTED, job, control, None, error.back_after_ms)
    if control is not None:
        control.error = error
    failure: Failure
    decision: Retry | GiveUp
    try:
        failure, decision = handler.failed(job, error)
    except BaseException as own:  # a handler's error must not cost a thread
        if not process.outlives(own):
            raise
        failure, decision = plain_failure(own), Retry()
    if isinstance(decision, GiveUp):
        return (FAILED, job, control, failure, None)
    return (RETRY, job, control, failure, decision.delay_ms)


def trace_of(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return ``exc_info`` for a log line: the traceback begins with the job's own frames."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _FRAMES:
        step = step.tb_next
    return type(error), error, step or error.__traceback__


def plain_failure(error: BaseException) -> Failure:
    """Return the failure of an error, with its type and message."""
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return Failure(type=name, message=text_of(error), fingerprint=name)
