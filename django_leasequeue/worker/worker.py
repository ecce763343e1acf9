"""The worker: its options, its parts, and the order in which it stops them."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from .. import conf
from ..conf import process
from ..conf.loglines import about
from ..conf.options import WorkerOptions
from ..engine import metadata
from ..engine.limits import MAX_NODE_BYTES
from ..engine.queues import routing
from . import forked
from .acknowledger import Acknowledger
from .control import Handler
from .coroutines import CoroutinePool
from .edge import guard_blocks
from .fetcher import Fetcher
from .held import SUSPECT, take_each
from .keeper import Keeper
from .queue_names import QueueChoice, check_names
from .run import failed
from .state import Report, WorkerState
from .threads import ThreadPool

if TYPE_CHECKING:
    from ..reaper import Reaper

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds that the other jobs get when a job that does not end forces the process to go.
RECYCLE_DRAIN = 5.0
#: Seconds that an aborted job gets to end by itself.
ABORT_GRACE = 1.0
#: Seconds after which a round of the keeper counts as hung.
HANGS = 60.0
#: Seconds for the last statements of the acknowledger.
FLUSH = 10.0
#: Seconds that idle threads get to end: they close connections, which takes time on a busy machine.
REST = 6.0


class ExitCode(IntEnum):
    """The reason for which a worker ended."""

    #: Asked to stop, or no work left; every started job has ended.
    OK = 0
    #: It could not start: invalid options or settings (Django's CommandError).
    USAGE = 1
    #: Stopped before every running job had ended: those were aborted and given back.
    GIVEN_BACK = 3
    #: A part of the worker broke: a bug. Its jobs were given back, or come back when their leases expire.
    BROKEN = 70
    #: It asks for a new process: a job outlived its hard timeout, or (with processes) it ran its ``max_jobs``.
    RECYCLE = 75


class HardTimeout(Exception):
    """A job outlived its hard timeout, and its process was replaced."""


def load_options(**given: Any) -> WorkerOptions:
    """Return the options as ``load_each``; without ``database`` those for the first database that holds queues."""
    return load_each(**given)[0]


def load_each(**given: Any) -> list[WorkerOptions]:
    """Return the given options over the settings', for each database; ``ImproperlyConfigured``: one is invalid."""
    chosen = {name: value for name, value in given.items() if value is not None}
    checked = conf.read(WorkerOptions, {name.upper(): value for name, value in chosen.items()}, "runworker")
    options = replace(conf.settings.WORKER, **{name: getattr(checked, name) for name in chosen})
    if len(options.node.encode()) > MAX_NODE_BYTES - 16:
        raise ImproperlyConfigured(f"node must have at most {MAX_NODE_BYTES - 16} bytes; it is {options.node!r}.")
    QueueChoice.of(options.queues)
    check_names("limits", tuple(options.limits), "names and patterns ('mail*') of queues")
    aliases = [options.database] if options.database else routing.aliases()
    for alias in aliases:
        routing.check_alias(alias)
    return [replace(options, database=alias) for alias in aliases]


def node_name() -> str:
    """Return a unique name for a worker: host, process id and a random part."""
    host = socket.gethostname().encode()[:64].decode(errors="ignore")
    return f"{host}:{os.getpid()}:{secrets.token_hex(3)}"


class Worker:
    """A worker process: claims, runs and settles jobs until it is asked to stop.

    ``recycles``: whether a run past its hard timeout ends the worker (a new process follows); else it is given up.
    """

    def __init__(
        self, options: WorkerOptions, *, node: str = "", handler: Handler | None = None, recycles: bool = True
    ) -> None:
        if handler is None:
            kind = import_string(options.handler)
            try:
                handler = kind(project=options.project)
            except TypeError as error:
                raise ImproperlyConfigured(
                    f"handler must be a class that takes project; it is {options.handler!r}: {error}"
                ) from error
        if metadata.wrap_handler is not None:
            handler = metadata.wrap_handler(handler, options.project)
        self.state = state = WorkerState(options, node or options.node or node_name(), handler)
        self._acknowledger = Acknowledger(state)
        self._threads = ThreadPool(state)
        state.timekeeper.abandon_run = None if recycles else self._threads.abandon_run
        self._coroutines = CoroutinePool(state)
        self._fetcher = Fetcher(state, self._coroutines)
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
        """Whether the worker's own threads live, none hangs, and no duty of the reaper is late while it leads."""
        # An unreachable database is no reason to replace a process: a new one would not reach it either.
        hangs = time.monotonic() - self._keeper.well_at > HANGS and not self._keeper.link.retrying
        return (
            self.state.broken is None
            and not hangs
            and all(thread.is_alive() for thread in list(self._service.values()))
            and (self._reaper is None or self._reaper.report()[0])
        )

    def report(self) -> Report:
        state, running, alone = self.state, self.state.running(), self.state.alone
        return self.healthy, {
            "node": state.node,
            "state": state.status,
            "held": len(state.held),
            "running": len(running),
            "suspects": sum(control.job.flags & SUSPECT > 0 for control, _ in running),
            "alone_seconds": 0.0 if alone is None else round(time.monotonic() - alone[1], 3),
            "database": "unreached" if state.outage.parts else "reached",
            **({"limits": state.options.limits} if state.options.limits else {}),
            **({} if self._reaper is None else {"reaper": self._reaper.report()[1]}),
            **state.figures.as_dict(),
        }

    def run(self, tick: Callable[[Report], None] | None = None) -> ExitCode:
        """Work until there is a reason to stop; call ``tick`` about once a second with the worker's health."""
        process.own_thread()
        self._tick = tick
        state = self.state
        forked.begins(self)
        guard_blocks()
        self._start()
        reaper = self._reaper
        while not (state.stop_asked or state.finished or state.recycle or state.broken is not None):
            if reaper is not None and self._fetcher.asked:
                reaper.start()  # after the first claim, which it would delay
                reaper = None
            self._wait(1.0)
        return self._stop()

    def _wait(self, seconds: float) -> None:
        self.state.main.wait(min(seconds, self.state.timekeeper.next_at - time.monotonic()))
        self.state.timekeeper.check()
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
                **({"limits": state.options.limits} if state.options.limits else {}),
            },
        )
        for part, body in (
            ("fetcher", self._fetcher.run),
            ("acknowledger", self._acknowledger.run),
            ("keeper", self._keeper.run),
            ("leases", partial(state.leases.watch, state.running)),
        ):
            self._service[part] = state.start_thread(part, body)

    def _stop(self) -> ExitCode:
        state, began = self.state, time.monotonic()
        why = state.recycle or state.stop_asked or ("no work left" if state.broken is None else "a part of it broke")
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
        forked.ends(self)
        if state.broken is not None:
            code = ExitCode.BROKEN
        elif state.recycle and not state.stop_asked:
            code = ExitCode.RECYCLE
        else:
            code = ExitCode.OK if drained and settled else ExitCode.GIVEN_BACK
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
        unstarted = self.state.buffer.take_all() + take_each(self._coroutines.jobs) + self.state.batches.take_all()
        if unstarted:
            self.state.give_back(unstarted, unstarted=True)

    def _drain(self, deadline: float) -> bool:
        state, overdue = self.state, self.state.timekeeper.overdue
        while True:
            self._return_unstarted()
            waited_for = len(state.held) - sum(job.seq in state.held for job in overdue)
            if waited_for <= 0 or state.broken is not None:
                return not overdue and not state.held
            left = deadline - time.monotonic()
            if left <= 0 or state.hurry:
                return False
            self._wait(min(left, 0.05))

    def _abandon(self) -> None:
        """Abort the running jobs; after a moment, give back those that have not ended."""
        state, overdue = self.state, self.state.timekeeper.overdue
        for control, _ in state.running():
            control.abort("stopping")
        deadline = time.monotonic() + ABORT_GRACE
        while len(state.held) > len(overdue) and time.monotonic() < deadline and state.broken is None:
            state.main.wait(0.02)
        late = {job.seq for job in overdue}
        for job in list(state.held.values()):
            if job.seq in late:
                error = HardTimeout("The job did not end at its hard timeout, and its process was replaced.")
                self._acknowledger.done.append(failed(state.handler, job, None, error))
            else:
                logger.warning("Job given back before it ended", extra=about(job))
                state.give_back([job], unstarted=False)
        self._acknowledger.wakeup.wake()

    def _flush(self) -> bool:
        """Let the acknowledger settle the rest; return whether the database has accepted all."""
        acknowledger, thread = self._acknowledger, self._service["acknowledger"]
        acknowledger.close()
        thread.join(FLUSH)
        if not thread.is_alive():
            return not acknowledger.done and self.state.empty
        acknowledger.give_up()
        thread.join(2)
        logger.error(
            "The ends of jobs did not reach the database: they will run again", extra={"node": self.state.node}
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
        if self.state.empty:
            self.state.journal.close()
        return threads and coroutines and not keeper.is_alive()
