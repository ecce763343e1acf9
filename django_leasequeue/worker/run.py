"""One run of a job: what is watched from outside while it runs, its timeouts, what its end means."""

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

from ..engine import Failure, LeasedJob
from ..engine.dead.fingerprint import text_of
from ..exceptions import NotBegun
from ..notify.alarms import Alarm
from .control import GiveUp, Handler, JobAborted, JobControl, JobTimeout, Retry
from .logs import about

_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)
_set_async_exc.restype = ctypes.c_int
_NULL: Any = ctypes.py_object()

logger = logging.getLogger("django_leasequeue.worker")

#: Packages whose frames stand above those of a job in its traceback.
_FRAMES = ("django_leasequeue", "asyncio", "asgiref", "contextlib", "opentelemetry")
#: Reasons to stop for which the job can do nothing.
_STOP_REASONS = ("stopping", "lease_lost", "cancelled")
#: How runs end, for the acknowledger.
COMPLETED, FAILED, RETRY, UNSTARTED, STOPPED, SUSPENDED = range(6)
#: (how it ended, the job, its control, the result as JSON or the failure, the delay of a retry in ms)
Entry = tuple[int, LeasedJob, JobControl | None, Any, int | None]


class RunAlarm:
    """The end of one run's time: its soft and its hard timeout, in seconds after ``since``; here of one in the loop."""

    __slots__ = ("control", "hard_at", "soft_at")

    def __init__(self, control: JobControl, since: float, soft: float | None, hard: float | None, grace: float) -> None:
        self.control = control
        if hard is None and soft is not None and grace:
            hard = soft + grace
        #: When the time is over (monotonic).
        self.soft_at = math.inf if soft is None else since + soft
        self.hard_at = math.inf if hard is None else since + hard

    def fire(self) -> None:
        """Break the run off, from any thread; nothing happens if it has ended."""
        self.control.abort("timeout")
        if (break_off := self.control.on_lost) is not None:
            with suppress(RuntimeError):  # its loop is closed
                break_off()

    def leave(self) -> bool:
        """Give the run up, from any thread; return False if it has ended first."""
        return True  # a task has no thread to lose; if it ends at this very moment its job runs again


class ThreadAlarm(RunAlarm):
    """The timeouts of one run in a thread: raises ``JobTimeout`` into the thread, at most once, and never later.

    Both sides take the only token first: the thread when the run ends, the timekeeper when the time is over.
    """

    __slots__ = ("_fired", "_place", "_thread", "_token", "slot")

    def __init__(self, slot: Slot, control: JobControl, soft: float | None, hard: float | None, grace: float) -> None:
        super().__init__(control, slot.since, soft, hard, grace)
        #: Where it is shown.
        self.slot = slot
        self._thread = threading.get_ident()
        self._token = [True]
        #: As the token: for the thread that ends its run, or for who puts another thread in its place.
        self._place = [True]
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
        """The run has ended: nothing may come any more. In the thread itself; may raise what just came."""
        try:
            self._token.pop()
        except IndexError:
            while not self._fired:
                time.sleep(0)
            # Takes back what has not been raised yet.
            _set_async_exc(self._thread, _NULL)

    def leave(self) -> bool:
        with suppress(IndexError):
            return self._place.pop()
        return False


class Timekeeper:
    """Knows the runs that have a timeout. ``check`` is called by the main thread, the rest by those who run jobs."""

    def __init__(self, main: Alarm, recycle: Callable[[str], None]) -> None:
        self._main, self._recycle = main, recycle
        #: Gives up a run that outlives its hard timeout; ``None``: the process is replaced.
        self.abandon_run: Callable[[RunAlarm], None] | None = None
        self._alarms: dict[int, RunAlarm] = {}
        #: When ``check`` is to be called next (monotonic).
        self.next_at = math.inf
        #: Jobs that outlived their hard timeout: only the end of the process ends them.
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
        """Do what is due: break runs off at their soft timeout; at the hard one end the process, or give the run up."""
        now = time.monotonic()
        self.next_at = math.inf
        for alarm in list(self._alarms.values()):
            job = alarm.control.job
            if alarm.soft_at <= now:
                alarm.soft_at = math.inf
                logger.warning("Job timed out", extra=about(job))
                alarm.fire()
            if alarm.hard_at <= now:
                alarm.hard_at = math.inf
                if self.abandon_run is not None:
                    self.abandon_run(alarm)
                    continue
                self.overdue.append(job)
                self._recycle(f"job {job.seq} ({job.name}) outlived its hard timeout")
        # What `expect` says meanwhile stays: it only ever lowers the time.
        for alarm in list(self._alarms.values()):
            self.next_at = min(self.next_at, alarm.soft_at, alarm.hard_at)


@dataclass(slots=True, eq=False)
class Slot:
    """The job that one thread runs now, and since when (monotonic). Others read it; only its thread changes it."""

    #: Of the journal.
    number: int
    control: JobControl | None = None
    since: float = 0.0
    #: The run outlived its time, and another thread has the place: this one ends.
    left: bool = False


def failed(handler: Handler, job: LeasedJob, control: JobControl | None, error: BaseException) -> Entry:
    """Ask the handler what an error means; an error of the handler itself is kept as the failure.

    A job that ended because the worker stops or its lease does has not failed: it is given back. So is one that could
    not begin, because its payload or its database was out of reach. One that sleeps or waits for an event goes on
    later.
    """
    if control is not None and control.suspension is not None:
        return (SUSPENDED, job, control, None, control.suspension.delay_ms)
    if control is not None and (
        (control.reason in _STOP_REASONS and isinstance(error, JobAborted))
        or (control.reason in ("lease_lost", "cancelled") and isinstance(error, asyncio.CancelledError))
    ):
        return (STOPPED, job, control, None, 0)
    if isinstance(error, NotBegun):
        logger.warning("A job cannot begin, and is given back: %s", error, extra={"seq": job.seq})
        return (UNSTARTED, job, control, None, error.back_after_ms)
    if control is not None:
        control.error = error
    failure: Failure
    decision: Retry | GiveUp
    try:
        failure, decision = handler.failed(job, error)
    except Exception as own:  # noqa: BLE001  (a handler's error must not cost a thread)
        failure, decision = plain_failure(own), Retry()
    if isinstance(decision, GiveUp):
        return (FAILED, job, control, failure, None)
    return (RETRY, job, control, failure, decision.delay_ms)


def trace_of(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return an error for a log line: its traceback without the worker's frames above the job's own."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _FRAMES:
        step = step.tb_next
    return type(error), error, step or error.__traceback__


def plain_failure(error: BaseException) -> Failure:
    """Return a failure with an error's type and message, without the handler's help."""
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return Failure(type=name, message=text_of(error), fingerprint=name)
