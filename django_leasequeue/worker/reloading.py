"""A worker for development: it starts anew when a file of the code changes (Django's autoreloader)."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import subprocess
import threading
import time
from types import FrameType

from django.core.exceptions import ImproperlyConfigured
from django.utils import autoreload

from ..conf.options import WorkerOptions
from ..notify import close_listeners
from .options import ExitCode
from .process import attended, replace_process
from .worker import ABORT_GRACE, FLUSH, Worker

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds that running jobs get to end before the worker starts anew.
PATIENCE = 5.0
#: The exit code by which Django's autoreloader asks for a new process.
CHANGED = 3
#: Seconds between two looks at the files after a start that failed.
LOOK = 0.5


def run_reloading(options: WorkerOptions) -> int:
    """Run one worker, and another one each time that the code has changed, until a signal ends it.

    This process only starts others. In those the autoreloader has the main thread and the worker another one.

    Args:
        options: of the worker.

    Returns:
        The exit code of this process.

    Raises:
        ImproperlyConfigured: the worker has several processes, or ends by itself.
    """
    if options.processes > 1:
        raise ImproperlyConfigured(
            f"--reload runs one process, and {options.processes} are asked for: add --processes 1."
        )
    if options.burst or options.max_jobs:
        raise ImproperlyConfigured("--reload is for a worker that goes on: leave --burst and --max-jobs out.")
    if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) != "true":
        return _start_again_and_again()
    autoreload.run_with_reloader(_run, options)
    return 0


def _start_again_and_again() -> int:
    """Keep a process with the same arguments; return the exit code of the one that ended for good."""
    asked: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        # A terminal sends SIGINT to the other process itself.
        if child is not None and number == signal.SIGTERM:
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
    while True:
        child = subprocess.Popen(autoreload.get_child_arguments(), env=environment, close_fds=False)  # nosec  # B603: our own command line
        code = child.wait()
        if asked or code == 0:
            return max(code, 0)
        if code != CHANGED:
            logger.warning("The worker could not start; it starts again when the code changes", extra={"code": code})
            _wait_for_a_change(asked)
            if asked:
                return max(code, 1)


def _wait_for_a_change(asked: list[int]) -> None:
    watcher = autoreload.StatReloader()
    before = dict(watcher.snapshot_files())
    while not asked and dict(watcher.snapshot_files()) == before:
        time.sleep(LOOK)


def _run(options: WorkerOptions) -> None:
    worker = Worker(options)
    ended = threading.Event()

    def stop() -> None:
        """End the worker before its process ends: the autoreloader only leaves the main thread."""
        worker.state.ask_stop("the code has changed, or a signal came")
        if not ended.wait(PATIENCE):
            worker.state.ask_hurry("its jobs do not end")
            ended.wait(ABORT_GRACE + 2 * FLUSH)
        close_listeners()

    atexit.register(stop)
    code = ExitCode.BROKEN
    try:
        with attended(options, worker) as tick:
            code = worker.run(tick)
    finally:
        ended.set()
    if code is ExitCode.RECYCLE:
        replace_process()
    elif not worker.state.stop_asked:
        logger.warning("The worker has ended; it starts again when the code changes", extra={"exit_code": int(code)})
