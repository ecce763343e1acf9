"""The supervisor: keeps a number of worker processes running, and stops them together.

It forks the children before there is any thread or connection. Each has two pipes: on one the supervisor sends it
orders (its end means that the supervisor is gone), on the other it reports its health.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from socketserver import TCPServer
from types import FrameType
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.module_loading import import_string

from ..conf import process
from ..conf.options import WorkerOptions
from ..notify import close_listeners
from ..notify.session import WakeUpPipe
from . import forked
from .process import HealthFile, health_page, leave, spare_collector
from .state import Report, WorkerFigures
from .worker import ABORT_GRACE, FLUSH, ExitCode, Worker, node_name

logger = logging.getLogger("django_leasequeue.worker")

#: First and longest pause, in seconds, before a dead child restarts; doubled each time, reset after a good while.
FIRST_RESTART, LAST_RESTART, GOOD_WHILE = 0.5, 30.0, 60.0
#: Seconds without a report after which a child counts as unhealthy.
SILENCE = 10.0
#: Seconds beyond all its own deadlines after which a child is killed.
MARGIN = 10.0

STOP, HURRY = b"s", b"h"


@dataclass(slots=True)
class Child:
    """One slot for a worker process, and its present process."""

    number: int
    options: WorkerOptions
    pid: int = 0
    orders: int = -1
    reports: int = -1
    started_at: float = 0.0
    restart_at: float = 0.0
    delay: float = FIRST_RESTART
    heard_at: float = 0.0
    report: dict[str, Any] = field(default_factory=dict)
    rest: bytes = b""
    #: No process follows.
    over: bool = False
    #: The number of processes so far.
    starts: int = 0


class Supervisor:
    """Runs ``processes`` workers for each database, by its options; restarts those that die or ask for it."""

    def __init__(self, *each: WorkerOptions) -> None:
        if not hasattr(os, "fork"):
            raise ImproperlyConfigured(
                "--processes and queues in several databases need an operating system that can fork; run several"
                " workers instead, each with --database."
            )
        self._options = options = each[0]
        self._name = options.node or node_name()
        #: The first process of each database also does the reaper's duties there.
        slots = [replace(one, reaper=one.reaper and not number) for one in each for number in range(one.processes)]
        self._children = [Child(number, one) for number, one in enumerate(slots)]
        self._selector = selectors.DefaultSelector()
        self._page: TCPServer | None = None
        self._file: HealthFile | None = None
        self._signals = 0
        self._stopping_at = 0.0
        self._ordered = b""
        self._worst = ExitCode.OK
        #: Counts of the processes that have ended.
        self._counted = WorkerFigures().as_dict()

    def run(self) -> ExitCode:
        """Supervise until every worker has ended for good; return this process's exit code, also in a child."""
        process.own_thread()
        connections.close_all()
        close_listeners()
        options = self._options
        # Loaded once for all children; an import error is raised once.
        import_string(options.handler)
        if options.health_port:
            from ..metrics.prometheus import no_queue_page, worker_page  # supervisors without a page need not load it

            pages = {"/metrics": worker_page(self._report, self._counted), "/metrics/queues": no_queue_page}
            self._page = health_page(options, self._report, pages, threads=False)
            self._selector.register(self._page, selectors.EVENT_READ, self._page.handle_request)
        if options.health_file:
            self._file = HealthFile(options.health_file)
        wakeup = WakeUpPipe()
        self._selector.register(wakeup.reading, selectors.EVENT_READ, wakeup.clear)
        before = {number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup.writing, warn_on_full_buffer=False)
        logger.info("Supervisor started", extra={"node": self._name, "processes": len(self._children)})
        while not all(child.over for child in self._children):
            if (code := self._step()) is not None:
                return code
        logger.info("Supervisor stopped", extra={"node": self._name, "exit_code": int(self._worst)})
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        if self._page is not None:
            self._page.server_close()
        if self._file is not None:
            self._file.remove()
        return self._worst

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _step(self) -> ExitCode | None:
        """Start, stop and watch children, then wait for an event; in a child, return its exit code."""
        now = time.monotonic()
        for child in self._children:
            if not child.pid and not child.over and now >= child.restart_at:
                code = self._start(child)
                if code is not None:
                    return code
        self._pass_on_signals()
        self._watch_stop(now)
        if self._file is not None:
            self._file.write(self._report())
        waits = [child.restart_at - now for child in self._children if not child.pid and not child.over]
        for key, _ in self._selector.select(max(0.0, min([1.0, *waits]))):
            key.data()
        self._reap()
        return None

    def _pass_on_signals(self) -> None:
        if not self._signals:
            return
        order = STOP if self._signals == 1 else HURRY
        if order == self._ordered:
            return
        self._ordered = order
        self._stopping_at = self._stopping_at or time.monotonic()
        logger.info("Supervisor stops its workers", extra={"node": self._name, "hurry": order == HURRY})
        for child in self._children:
            if child.pid:
                with suppress(BrokenPipeError):  # it has just ended
                    os.write(child.orders, order)
            else:
                child.over = True

    def _watch_stop(self, now: float) -> None:
        """Kill a child that outlives all its own deadlines: its jobs come back when their leases expire."""
        if not self._stopping_at:
            return
        deadline = self._stopping_at + self._options.drain_timeout + ABORT_GRACE + 2 * FLUSH + MARGIN
        for child in self._children:
            if child.pid and now > deadline:
                logger.error("A worker process does not end: it is killed", extra={"pid": child.pid})
                os.kill(child.pid, signal.SIGKILL)

    def _start(self, child: Child) -> ExitCode | None:
        orders_reading, orders_writing = os.pipe()
        reports_reading, reports_writing = os.pipe()
        child.started_at = child.heard_at = time.monotonic()
        child.starts += 1
        child.rest, child.report = b"", {}
        pid = os.fork()
        if pid == 0:
            os.close(orders_writing)
            os.close(reports_reading)
            self._forget_parent()
            # A restarted child has another name than the one before.
            node = f"{self._name}.{child.number}" + (f"+{child.starts - 1}" if child.starts > 1 else "")
            return run_child(child.options, node, orders_reading, reports_writing)
        os.close(orders_reading)
        os.close(reports_writing)
        os.set_blocking(reports_reading, False)
        child.pid, child.orders, child.reports = pid, orders_writing, reports_reading
        self._selector.register(reports_reading, selectors.EVENT_READ, partial(self._hear, child))
        return None

    def _forget_parent(self) -> None:
        """In a child: close the parent's descriptors. With an open pipe, other children would miss the parent's end."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for other in self._children:
            if other.pid:
                os.close(other.orders)
                os.close(other.reports)
        self._selector.close()
        if self._page is not None:
            self._page.server_close()

    def _hear(self, child: Child) -> None:
        data = b""
        with suppress(BlockingIOError):
            data = os.read(child.reports, 65_536)
        if not data:  # it is ending: its pipe would stay ready
            self._selector.unregister(child.reports)
            return
        *lines, child.rest = (child.rest + data).split(b"\n")
        if lines:
            child.report = json.loads(lines[-1])
            child.heard_at = time.monotonic()

    def _reap(self) -> None:
        for child in self._children:
            if not child.pid:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                with suppress(KeyError):  # its last report, unless its pipe has ended
                    self._hear(child)
                with suppress(KeyError):
                    self._selector.unregister(child.reports)
                os.close(child.reports)
                os.close(child.orders)
                child.pid = 0
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: Child, code: int) -> None:
        report, child.report = child.report, {}
        for name in self._counted:
            self._counted[name] += report.get(name, 0)
        now = time.monotonic()
        # A task may end the process with any exit code: only one that the worker has reported before counts.
        meant = report.get("ends") == code
        planned = meant and code == ExitCode.RECYCLE
        if code == ExitCode.USAGE and not report:  # no other one would start either
            self._worst = ExitCode.USAGE
            self._signals = max(self._signals, 1)
            child.over = True
            return
        if (meant and code in (ExitCode.OK, ExitCode.GIVEN_BACK)) or self._stopping_at:
            child.over = True
            if code not in (ExitCode.OK, ExitCode.RECYCLE):
                self._worst = max(self._worst, ExitCode.BROKEN if code not in set(ExitCode) else ExitCode(code))
            return
        if planned or now - child.started_at > GOOD_WHILE:
            child.delay = FIRST_RESTART
        child.restart_at = now if planned else now + child.delay
        logger.log(
            logging.INFO if planned else logging.ERROR,
            "A worker process ended and restarts",
            extra={"number": child.number, "exit_code": code, "seconds": 0 if planned else child.delay},
        )
        if not planned:
            child.delay = min(child.delay * 2, LAST_RESTART)

    def _report(self) -> Report:
        now = time.monotonic()
        well = all(
            child.over or (child.pid and now - child.heard_at < SILENCE and child.report.get("healthy", True))
            for child in self._children
        )
        return well, {"node": self._name, "workers": [child.report for child in self._children]}


def run_child(options: WorkerOptions, node: str, orders: int, reports: int) -> ExitCode:
    """Run one worker that reads ``orders`` and writes its health, one JSON object a line, to ``reports`` (pipes)."""
    worker = Worker(options, node=node)
    state = worker.state
    # The supervisor passes signals on; a signal to the whole group must not count twice.
    # A no-op instead of SIG_IGN, which programs that tasks start would inherit.
    forked.handle(signal.SIGINT, lambda *_: None)
    forked.handle(signal.SIGTERM, lambda *_: state.ask_stop("SIGTERM"))
    forked.keep_to_parent(orders)
    forked.keep_to_parent(reports)

    def obey() -> None:
        while True:
            order = os.read(orders, 1)
            if order == HURRY:
                state.ask_hurry("the supervisor")
            else:
                state.ask_stop("the supervisor" if order else "the supervisor is gone")
            if not order:
                return

    threading.Thread(target=obey, name="leasequeue-orders", daemon=True).start()

    def tick(report: Report, **ending: ExitCode) -> None:
        well, figures = report
        try:
            os.write(reports, json.dumps({"healthy": well, **figures, **ending}).encode() + b"\n")
        except OSError:
            state.ask_stop("the supervisor is gone")

    spare_collector()
    tick(worker.report())  # before any job: from now on a process that dies is restarted
    code = worker.run(tick)
    if code is ExitCode.OK and options.max_jobs and state.finished and not options.burst:
        code = ExitCode.RECYCLE
    tick(worker.report(), ends=code)  # with its last counts
    close_listeners()
    leave(worker, code)
    return code
