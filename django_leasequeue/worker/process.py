"""One worker process: signals, health, exit; for development, restarts when the code changes."""

from __future__ import annotations

import atexit
import gc
import json
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.utils import autoreload

from ..conf import process
from ..conf.options import WorkerOptions
from ..notify import close_listeners
from . import forked
from .state import Report
from .worker import ABORT_GRACE, FLUSH, ExitCode, Worker

if TYPE_CHECKING:
    from socketserver import TCPServer

logger = logging.getLogger("django_leasequeue.worker")

#: The collector's threshold for young objects: more than current jobs have.
YOUNG = 5_000
#: Seconds that running jobs get before the worker restarts.
RELOAD_PATIENCE = 5.0
#: Seconds between two writings of the health file.
EVERY = 5.0
#: Seconds that threads of tasks get to end after the worker has stopped.
LEFT_GRACE = 5.0
#: Where the process was started.
_DIRECTORY = Path.cwd()
#: The exit code with which Django's autoreloader asks for a new process.
CHANGED = 3
#: Seconds between polls of the files after a failed start.
FILE_POLL = 0.5


def spare_collector() -> None:
    """Keep the garbage collector of a worker's process away from objects that stay."""
    gc.freeze()
    # Jobs would survive several collections, and are then gone.
    young, *older = gc.get_threshold()
    if young:  # 0: the host has switched the collector off
        gc.set_threshold(max(young, YOUNG), *older)


def run_alone(options: WorkerOptions) -> ExitCode:
    """Run one worker in this process until a signal, an operator or its options end it."""
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


def health_page(
    options: WorkerOptions,
    report: Callable[[], Report],
    pages: Mapping[str, Callable[[str], tuple[int, str, bytes]]],
    *,
    threads: bool = True,
) -> TCPServer:
    """Return an HTTP server: ``GET`` returns 200 while the worker is healthy, else 503, and its figures as JSON.

    ``pages`` maps addresses to functions of the header ``Accept``. No ``threads`` in a process that forks.
    """
    from http.server import BaseHTTPRequestHandler  # few workers need the modules of an HTTP server
    from socketserver import TCPServer, ThreadingMixIn

    class Handler(BaseHTTPRequestHandler):
        timeout = 2

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            if page is not None:
                status, content_type, body = page(self.headers.get("Accept", ""))
            else:
                well, figures = report()
                status, content_type = 200 if well else 503, "application/json"
                body = json.dumps({"healthy": well, **figures}).encode()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: probes come every few seconds."""

    class Server(TCPServer):  # an HTTPServer asks the name service for the host's full name
        address_family = socket.AF_INET6 if ":" in options.health_host else socket.AF_INET
        allow_reuse_address = True
        timeout = 0

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Log nothing: the client went away."""

    class Threaded(ThreadingMixIn, Server):
        # A probe must not wait for a page that waits for the database.
        daemon_threads = True
        block_on_close = False

    return (Threaded if threads else Server)((options.health_host, options.health_port), Handler)


class HealthFile:
    """A file whose age shows the worker's health: written while it is healthy, removed when it stops."""

    def __init__(self, path: str) -> None:
        self._path = Path(path).absolute()  # a task may change the directory
        self._tried_at = -math.inf

    def write(self, report: Report) -> None:
        """Write the file if the worker is healthy and the last write is some seconds ago."""
        if time.monotonic() - self._tried_at < EVERY:
            return
        self._tried_at = time.monotonic()
        well, figures = report
        if well:
            fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            fresh.write_text(json.dumps(figures) + "\n")
            fresh.replace(self._path)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


@contextmanager
def attended(options: WorkerOptions, worker: Worker) -> Iterator[Callable[[Report], None] | None]:
    """Serve a worker's health page during the block; yield the function that writes its health file."""
    with ExitStack() as stack:
        if options.health_port:
            from ..metrics.prometheus import queue_page, worker_page

            pages = {"/metrics": worker_page(worker.report, {}), "/metrics/queues": queue_page(options.database)}
            page = stack.enter_context(health_page(options, worker.report, pages))
            thread = threading.Thread(target=page.serve_forever, name="leasequeue-health", daemon=True)
            thread.start()
            forked.keep_to_parent(page.fileno())
            stack.callback(forked.forget, page.fileno())
            stack.callback(thread.join, 5)
            stack.callback(page.shutdown)
        if options.health_file:
            file = HealthFile(options.health_file)
            stack.callback(file.remove)
            yield file.write
        else:
            yield None


def handle_signals(worker: Worker) -> None:
    """Let SIGTERM and SIGINT stop the worker: the first lets running jobs end, the second does not."""

    def stop(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if worker.state.stop_asked:
            worker.state.ask_hurry(name)
        else:
            worker.state.ask_stop(name)

    for number in (signal.SIGTERM, signal.SIGINT):
        forked.handle(number, stop)


def replace_process() -> None:
    """Replace this process, with its threads, by a new interpreter with the same arguments."""
    logger.warning("The process is replaced", extra={"pid": os.getpid()})
    _flush()
    os.chdir(_DIRECTORY)  # a task may have changed it, and the arguments are relative to it
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # nosec B606  # what this process was started with


def leave(worker: Worker, code: ExitCode) -> None:
    """End the process, at once if a thread hangs in a job: an ordinary exit would wait for it."""
    if not worker.clean:
        _flush()
        os._exit(code)
    threading.Thread(target=_end_in_spite_of_threads, args=(code,), name="leasequeue-leave", daemon=True).start()


def _end_in_spite_of_threads(code: ExitCode) -> None:
    """End the process if its exit waits too long for threads of tasks."""
    time.sleep(LEFT_GRACE)
    main = threading.main_thread()
    if not any(module == "threading" and name == "_shutdown" for module, name, _ in _calls_of(main)):
        return  # it is busy with something else
    left = []
    for thread in threading.enumerate():
        calls = _calls_of(thread)
        # An exit waits for threads of executors as well.
        if thread is not main and (not thread.daemon or any(call[0] == "concurrent.futures.thread" for call in calls)):
            where = next((call for call in calls if call[0].partition(".")[0] not in sys.stdlib_module_names), None)
            left.append(thread.name + (f" (in {where[0]}.{where[1]}, line {where[2]})" if where else ""))
    logger.warning("The process ends although threads of tasks still run: %s", ", ".join(left))
    _flush()
    os._exit(code)


def _calls_of(thread: threading.Thread) -> list[tuple[str, str, int]]:
    """Return a thread's stack as (module, function, line), the last call first."""
    stack = traceback.walk_stack(sys._current_frames().get(thread.ident or 0))
    return [(frame.f_globals.get("__name__", ""), frame.f_code.co_qualname, line) for frame, line in stack]


def _flush() -> None:
    with suppress(BaseException):  # handlers are the host's
        logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a task may have closed it
            stream.flush()


def run_reloading(options: WorkerOptions) -> int:
    """Run one worker, restarted whenever the code changes, until a signal ends it."""
    if options.processes > 1:
        raise ImproperlyConfigured(
            f"--reload takes one process; --processes is {options.processes}: add --processes 1."
        )
    if options.burst or options.max_jobs:
        raise ImproperlyConfigured("--reload cannot be combined with --burst or --max-jobs, which end the worker.")
    if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) != "true":
        return _start_again_and_again()
    reloader = autoreload.get_reloader()

    def leave(number: int, _frame: FrameType | None) -> None:
        # No exception: it could come in a callback of the interpreter, which drops it.
        autoreload.BaseReloader.stop(reloader)
        signal.signal(number, signal.SIG_DFL)  # the second one does not wait

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    logger.info("Watching for file changes with %s", type(reloader).__name__)
    autoreload.start_django(reloader, _run_watched, options)
    return 0


def _start_again_and_again() -> int:
    """Run processes with the same arguments; return the exit code of the last one."""
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
        if signal.SIGTERM in asked:  # it came when there was no process to pass it on to
            child.send_signal(signal.SIGTERM)
        code = child.wait()
        if asked or code == 0:  # a signal during a restart is an orderly end, too
            return 0 if code == CHANGED else max(code, 0)
        if code != CHANGED:
            logger.warning("The worker could not start; it restarts when the code changes", extra={"code": code})
            watcher = autoreload.StatReloader()
            before = dict(watcher.snapshot_files())
            while not asked and dict(watcher.snapshot_files()) == before:
                time.sleep(FILE_POLL)
            if asked:
                return max(code, 1)


def _run_watched(options: WorkerOptions) -> None:
    worker = Worker(options)
    ended = threading.Event()

    def stop() -> None:
        """End the worker before its process ends: the autoreloader only leaves the main thread."""
        worker.state.ask_stop("the code has changed, or a signal came")
        if not ended.wait(RELOAD_PATIENCE):
            worker.state.ask_hurry("its jobs do not end")
            ended.wait(ABORT_GRACE + 2 * FLUSH)
        close_listeners()

    atexit.register(stop)
    try:
        with attended(options, worker) as tick:
            code = worker.run(tick)
    finally:
        ended.set()
    if code is ExitCode.RECYCLE:
        replace_process()
    elif not worker.state.stop_asked:
        logger.warning("The worker has ended; it restarts when the code changes", extra={"exit_code": int(code)})
