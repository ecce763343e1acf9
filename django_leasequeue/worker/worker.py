"""The worker: puts its parts together, and stops them in the right order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..conf.options import WorkerOptions
from ..engine import tracing
from .acknowledger import Acknowledger
from .coroutines import CoroutinePool
from .fetcher import Fetcher
from .handler import Handler
from .keeper import Keeper
from .logs import about
from .options import ExitCode, node_name
from .run import failed
from .state import WorkerState
from .suspects import SuspectIsolation
from .threads import ThreadPool, Timekeeper

if TYPE_CHECKING:
    from ..reaper import Reaper
    from .health import Report

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds that the other jobs get when the process has to go because of one that does not end.
RECYCLE_DRAIN = 5.0
#: Seconds that a job gets to end by itself after it was told to.
ABORT_GRACE = 1.0
#: Seconds of one round of keeping leases after which it hangs.
HANGS = 60.0
#: Seconds that the database gets to hear of the last ends and of jobs given back.
FLUSH = 10.0
#: Seconds that threads with nothing left to do get to end: they close connections, which takes some on a busy machine.
REST = 6.0


class HardTimeout(Exception):
    """A job outlived its hard timeout; its process was replaced."""


def _handler(options: WorkerOptions) -> Handler:
    kind = import_string(options.handler)
    try:
        made: Handler = kind(project=options.project)
    except TypeError as error:
        raise ImproperlyConfigured(f"The handler {options.handler!r} cannot be made: {error}") from error
    return made


class Worker:
    """A worker process: claims jobs, runs them, settles them, until it is asked to stop.

    Args:
        options: what to do.
        node: its name; by default host, process id and a random part.
        handler: what runs the jobs; by default the one that the options name.
        recycles: whether a run that outlives its hard timeout ends the worker (a new process follows), or is given up.
    """

    def __init__(
        self, options: WorkerOptions, *, node: str = "", handler: Handler | None = None, recycles: bool = True
    ) -> None:
        made = handler if handler is not None else _handler(options)
        if tracing.wrap is not None:
            made = tracing.wrap(made, options.project)
        self.state = state = WorkerState(options, node or options.node or node_name(), made)
        self._timekeeper = Timekeeper(state)
        self._acknowledger = Acknowledger(state)
        self._threads = ThreadPool(state, self._timekeeper)
        self._timekeeper.abandon_run = None if recycles else self._threads.abandon_run
        self._coroutines = CoroutinePool(state, self._timekeeper)
        self._isolation = SuspectIsolation(state, self._coroutines)
        self._fetcher = Fetcher(state, self._coroutines, self._isolation)
        self._keeper = Keeper(state, self._fetcher.shrink)
        self._service: dict[str, threading.Thread] = {}
        self._reaper: Reaper | None = None
        if options.reaper:
            from ..reaper import Reaper  # workers without one need not load it

            self._reaper = Reaper(options.database)
        self._tick: Callable[[Report], None] | None = None
        self._ticked_at = 0.0
        #: Whether every thread has ended; otherwise only the end of the process ends them.
        self.clean = False

    @property
    def healthy(self) -> bool:
        """Whether the worker's own threads live and none hangs.

        A database that is not reached is no illness of the worker: a new process would not reach it either, and would
        lose what runs. The report says it.
        """
        hangs = time.monotonic() - self._keeper.well_at > HANGS and not self._keeper.link.retrying
        return (
            self.state.broken is None
            and not hangs
            and all(thread.is_alive() for thread in list(self._service.values()))
        )

    def report(self) -> Report:
        state = self.state
        figures = {
            "node": state.node,
            "state": state.status,
            "held": len(state.held),
            "running": len(state.running()),
            "database": "unreached" if state.outage.parts else "reached",
        }
        return self.healthy, {**figures, **state.figures.as_dict()}

    def run(self, tick: Callable[[Report], None] | None = None) -> ExitCode:
        """Work until there is a reason to stop; about once a second call ``tick`` with the worker's health."""
        self._tick = tick
        state = self.state
        self._start()
        reaper = self._reaper
        while not (state.stop_asked or state.finished or state.recycle or state.broken):
            if reaper is not None and self._fetcher.asked:
                reaper.start()  # only now: its connections and statements would delay the first claim
                reaper = None
            self._wait(1.0)
        return self._stop()

    def _wait(self, seconds: float) -> None:
        """Sleep until something happens; watch over timeouts."""
        self.state.main.wait(min(seconds, self._timekeeper.next_at - time.monotonic()))
        self._timekeeper.check()
        if self._tick is not None and time.monotonic() - self._ticked_at >= 1:
            self._ticked_at = time.monotonic()
            self._tick(self.report())

    def _start(self) -> None:
        state = self.state
        self._threads.start()
        logger.info(
            "Worker started",
            extra={
                "node": state.node,
                "database": state.options.database,
                "queues": ",".join(state.options.queues) or "*",
                "concurrency": state.options.concurrency,
                "async_concurrency": state.options.coroutines,
            },
        )
        for part, body in (
            ("fetcher", self._fetcher.run),
            ("acknowledger", self._acknowledger.run),
            ("keeper", self._keeper.run),
            ("leases", partial(state.leases.watch, state.running)),
        ):
            self._service[part] = state.start_thread(part, body)

    # The end

    def _stop(self) -> ExitCode:
        state, began = self.state, time.monotonic()
        why = state.recycle or state.stop_asked or ("a part of it broke" if state.broken else "nothing left to do")
        logger.info("Worker stops", extra={"node": state.node, "why": why, "held": len(state.held)})
        state.status = "draining"
        self._stop_claiming()
        patience = state.options.drain_timeout
        if state.recycle:
            patience = min(patience, RECYCLE_DRAIN)
        drained = self._drain(began + patience)
        if not drained:
            self._abandon()
        settled = self._flush()
        self.clean = self._close()
        code = self._exit_code(drained and settled)
        logger.info(
            "Worker stopped",
            extra={"node": state.node, "exit_code": int(code), "clean": self.clean, **state.figures.as_dict()},
        )
        return code

    def _stop_claiming(self) -> None:
        self.state.draining.set()
        self._return_unstarted()
        self.state.buffer.fetcher.wake()
        self._fetcher.link.give_up()
        fetcher = self._service["fetcher"]
        fetcher.join(2)
        if fetcher.is_alive():
            self._fetcher.link.cancel()
            fetcher.join(2)
        if self._reaper is not None:
            self._reaper.stop(5)
        self._keeper.wakeup.wake()

    def _return_unstarted(self) -> None:
        unstarted = self._isolation.take_waiting()
        if unstarted:
            self.state.give_back(unstarted, unstarted=True)

    def _drain(self, deadline: float) -> bool:
        """Wait for running jobs; return whether all ended."""
        state, overdue = self.state, self._timekeeper.overdue
        while True:
            self._return_unstarted()
            waited_for = len(state.held) - sum(job.seq in state.held for job in overdue)
            if waited_for <= 0 or state.broken:
                return not overdue and not state.held
            left = deadline - time.monotonic()
            if left <= 0 or state.hurry:
                return False
            self._wait(min(left, 0.05))

    def _abandon(self) -> None:
        """Give the jobs back that did not end: first they are told, and get a moment."""
        state, overdue = self.state, self._timekeeper.overdue
        for control, _ in state.running():
            control.abort("stopping")
        deadline = time.monotonic() + ABORT_GRACE
        while len(state.held) > len(overdue) and time.monotonic() < deadline and not state.broken:
            state.main.wait(0.02)
        late = {job.seq for job in overdue}
        for job in list(state.held.values()):
            if job.seq in late:
                error = HardTimeout("It did not end at its hard timeout; its process was replaced.")
                self._acknowledger.done.append(failed(state.handler, job, None, error))
            else:
                logger.warning("Job given back before it ended", extra=about(job))
                state.give_back([job], unstarted=False)
        self._acknowledger.wakeup.wake()

    def _flush(self) -> bool:
        """Let the acknowledger tell what is left; return whether the database heard all."""
        acknowledger, thread = self._acknowledger, self._service["acknowledger"]
        acknowledger.close()
        thread.join(FLUSH)
        if not thread.is_alive():
            return not acknowledger.done and self.state.empty
        acknowledger.give_up()
        thread.join(2)
        logger.error(
            "The database did not hear of the end of jobs: they will run again", extra={"node": self.state.node}
        )
        return False

    def _close(self) -> bool:
        self.state.leases.close()
        self._keeper.close()
        keeper = self._service["keeper"]
        keeper.join(2)
        if keeper.is_alive():
            self._keeper.link.give_up()
            keeper.join(REST)
        hangs = bool(self.state.running())
        threads = self._threads.stop(0.2 if hangs else REST)
        coroutines = self._coroutines.stop(2.0 if hangs else REST)
        self.state.journal.close(settled=self.state.empty)
        return threads and coroutines and not keeper.is_alive()

    def _exit_code(self, drained: bool) -> ExitCode:
        if self.state.broken is not None:
            return ExitCode.BROKEN
        if self.state.recycle and not self.state.stop_asked:
            return ExitCode.RECYCLE
        return ExitCode.OK if drained else ExitCode.GIVEN_BACK
