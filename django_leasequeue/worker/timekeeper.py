"""The timekeeper: watches over the timeouts of running jobs, from the worker's main thread."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from .control import JobControl
from .run import RunAlarm
from .state import WorkerState

logger = logging.getLogger("django_leasequeue.worker")


class Timekeeper:
    """Knows the runs that have a timeout. ``check`` is called by the main thread, the rest by those who run jobs.

    Args:
        state: the worker's.
    """

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        #: Gives up a run that outlives its hard timeout; ``None``: the process is replaced.
        self.abandon_run: Callable[[RunAlarm], None] | None = None
        self._alarms: dict[int, RunAlarm] = {}
        #: When ``check`` is to be called next (monotonic).
        self.next_at = math.inf
        #: Runs that outlived their hard timeout: only the end of the process ends them.
        self.overdue: list[JobControl] = []

    def expect(self, alarm: RunAlarm) -> None:
        """Watch over a run."""
        self._alarms[id(alarm)] = alarm
        at = min(_known(alarm))
        if at < self.next_at:
            self.next_at = at
            self._state.main.wake()

    def forget(self, alarm: RunAlarm) -> None:
        """The run has ended."""
        self._alarms.pop(id(alarm), None)

    def check(self) -> None:
        """Do what is due: break runs off at their soft timeout; at the hard one end the process, or give the run up."""
        now = time.monotonic()
        self.next_at = math.inf
        for alarm in list(self._alarms.values()):
            job = alarm.control.job
            if alarm.soft_at is not None and alarm.soft_at <= now:
                alarm.soft_at = None
                logger.warning(
                    "Job timed out", extra={"seq": job.seq, "queue": job.queue, "job": job.name, "key": job.key}
                )
                alarm.fire()
            if alarm.hard_at is not None and alarm.hard_at <= now:
                alarm.hard_at = None
                if self.abandon_run is not None:
                    self.abandon_run(alarm)
                    continue
                self.overdue.append(alarm.control)
                self._state.ask_recycle(f"job {job.seq} ({job.name}) outlived its hard timeout")
        # What `expect` says meanwhile stays: it only ever lowers the time.
        for alarm in list(self._alarms.values()):
            self.next_at = min(self.next_at, *_known(alarm))


def _known(alarm: RunAlarm) -> tuple[float, float]:
    soft, hard = alarm.soft_at, alarm.hard_at
    return math.inf if soft is None else soft, math.inf if hard is None else hard
