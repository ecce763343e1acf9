"""One worker process: signals, health and the way it ends."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ..conf import process
from ..conf.options import WorkerOptions
from ..notify import close_listeners
from .health import HealthFile, HealthPage, Report
from .options import ExitCode
from .worker import Worker

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds between two writings of the health file.
FILE_EVERY = 5


#: Objects that a worker makes until the garbage collector looks at the young ones: more than jobs under way have.
YOUNG = 5_000


def spare_collector() -> None:
    """Keep the garbage collector of a worker's process from walking over what is in use.

    What is loaded by now stays: no collection needs to look at it, not even the last one of the process. Jobs live
    long enough to be looked at several times, and are then gone.
    """
    gc.freeze()
    young, *older = gc.get_threshold()
    if young:  # 0: somebody switched it off
        gc.set_threshold(max(young, YOUNG), *older)


def run_alone(options: WorkerOptions) -> ExitCode:
    """Run one worker in this process until a signal, an operator or its options end it.

    A process that a job does not leave is replaced by a new one with the same arguments: then this does not return.

    Raises:
        OSError: the health page's address or the health file cannot be used.
    """
    with process.collector_paused():  # it loads the handler and its tasks
        worker = Worker(options)
    handle_signals(worker)
    with attended(options, worker) as tick:
        spare_collector()
        try:
            code = worker.run(tick)
        finally:
            close_listeners()
    if code is ExitCode.RECYCLE:
        replace_process()
    leave(worker, code)
    return code


@contextmanager
def attended(options: WorkerOptions, worker: Worker) -> Iterator[Callable[[Report], None]]:
    """Serve a worker's health page and write its health file for the length of the block.

    Args:
        options: say where.
        worker: the worker.

    Yields:
        What the worker is to call about once a second.

    Raises:
        OSError: the health page's address or the health file cannot be used.
    """
    page = _page(options, worker) if options.health_port else None
    file = HealthFile(options.health_file) if options.health_file else None
    ticks = 0

    def tick(report: Report) -> None:
        nonlocal ticks
        if file is not None and ticks % FILE_EVERY == 0:
            file.write(report)
        ticks += 1

    if page is not None:
        page.start()
    try:
        yield tick
    finally:
        if page is not None:
            page.close()
        if file is not None:
            file.remove()


def _page(options: WorkerOptions, worker: Worker) -> HealthPage:
    from ..metrics.worker import queue_page, worker_page  # workers without a page need not load it

    def figures() -> tuple[bool, list[dict[str, Any]], dict[str, int]]:
        well, found = worker.report()
        return well, [found], {}

    pages = {"/metrics": worker_page(figures), "/metrics/queues": queue_page(options.database)}
    return HealthPage(options.health_host, options.health_port, worker.report, pages)


def handle_signals(worker: Worker) -> None:
    """Let SIGTERM and SIGINT stop the worker: the first lets running jobs end, the second does not."""

    def stop(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if worker.state.stop_asked:
            worker.state.ask_hurry(name)
        else:
            worker.state.ask_stop(name)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def replace_process() -> None:
    """Put a new interpreter with the same arguments in the place of this process; its threads end with it."""
    logger.warning("The process is replaced", extra={"pid": os.getpid()})
    _flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # nosec B606  # what this process was started with


def leave(worker: Worker, code: ExitCode, *, end: Callable[[int], None] = os._exit) -> None:
    """End the process at once if a thread hangs in a job; an ordinary exit would wait for it."""
    if not worker.clean:
        _flush()
        end(code)


def _flush() -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
