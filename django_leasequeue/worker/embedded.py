"""A worker inside a web process, which starts it, lets its jobs end when it stops, and lives on when it breaks."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils import autoreload

from .. import conf
from ..conf import process
from ..conf.loglines import set_up_logging
from ..conf.options import WorkerOptions
from .process import RELOAD_PATIENCE
from .worker import ExitCode, Worker, load_each, node_name

logger = logging.getLogger("django_leasequeue.worker")

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Options of a process of a worker's own, and what stands in their place: a web process is not the worker's to end.
_NOT_HERE: dict[str, Any] = {
    "processes": 1, "burst": False, "max_jobs": 0, "timeout_grace": 0.0, "node": "", "health_host": "",
    "health_port": 0, "health_file": "", "json_logs": False,
}  # fmt: skip
#: Seconds before a worker that broke is started again: the first time, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
#: Seconds that a stop waits beyond the drain, for the database to hear of the last ends.
SETTLING = 20.0

#: The one worker of this process. A forked child begins without.
_embedded: process.Shared[str, EmbeddedWorker] = process.Shared()


class EmbeddedWorker:
    """A worker in threads of this process, for hooks of a web server: ``start`` after the fork, ``stop`` at the end.

    A process has at most one. It handles no signals: those are the server's. If it breaks, the process goes on, and
    the worker starts again after a pause. In the admin the name of its node ends in ``:web``.

    Args:
        options: of ``LEASEQUEUE["WORKER"]``, in small letters. ``concurrency`` is 2 unless it is given here,
            ``async_concurrency`` the same. Options of a process of its own are refused: ``processes``, ``burst``,
            ``max_jobs``, ``timeout_grace``, ``node``, ``json_logs``, and the health page and file.

    Raises:
        ImproperlyConfigured: an option is not allowed.
    """

    def __init__(self, **options: Any) -> None:
        taken = WorkerOptions.__dataclass_fields__.keys() - _NOT_HERE
        for name in sorted(options.keys() - taken):
            what = "an option of runworker" if name in _NOT_HERE else "no option"
            raise ImproperlyConfigured(
                f"{name} is {what}; a worker in a web process takes {', '.join(sorted(taken))}. It got"
                f" {options[name]!r}."
            )
        problems: list[conf.Problem] = []
        conf.parse(WorkerOptions, {name.upper(): options[name] for name in options}, "The embedded worker", problems)
        if problems:  # without their hints: its defaults are others
            raise ImproperlyConfigured("\n".join(problem.message for problem in problems))
        each = load_each(**{"concurrency": 2, "async_concurrency": 0, **options})
        if len(each) > 1:
            aliases = ", ".join(one.database for one in each)
            raise ImproperlyConfigured(
                f"database must name one of the databases that hold queues ({aliases}): a web process works for one."
            )
        self.options = replace(each[0], **_NOT_HERE)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._worker: Worker | None = None

    @property
    def running(self) -> bool:
        """Whether it has been started and not stopped; also while it pauses after a break."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def healthy(self) -> bool:
        """Whether it takes jobs: for a health check of the web process that is to fail where the worker does."""
        worker = self._worker
        return self.running and worker is not None and worker.healthy

    def start(self) -> bool:
        """Begin to take jobs, and return at once whether this worker runs.

        It does not under pytest and ``manage.py test``, nor beside another one in the same process. The end of the
        interpreter stops it if nobody has.
        """
        if not process.switches.embedded or sys.argv[1:2] == ["test"]:
            logger.info("The embedded worker is off in tests")
            return False
        if _embedded.get("worker", self._begin, usable=lambda worker: worker.running) is self:
            return True
        logger.warning("The embedded worker is not started: another one runs in this process")
        return False

    def _begin(self, _key: str) -> EmbeddedWorker:
        self._stopping, self._worker = threading.Event(), None
        self._thread = threading.Thread(target=self._run, name="leasequeue-embedded", daemon=True)
        self._thread.start()
        atexit.register(self.stop)
        return self

    def stop(self) -> bool:
        """Take no more jobs, wait for the running ones (``drain_timeout``), give the rest back.

        Returns:
            Whether the worker has ended.
        """
        atexit.unregister(self.stop)
        thread = self._thread
        if thread is None or not thread.is_alive():
            return True
        self._stopping.set()
        if self._worker is not None:
            self._worker.state.ask_stop("the web process stops")
        thread.join(self.options.drain_timeout + SETTLING)
        return not thread.is_alive()

    def _run(self) -> None:
        process.own_thread()
        while not apps.ready_event.wait(0.1):  # the settings start it while apps are loaded
            if self._stopping.is_set():
                return
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._worker = worker = Worker(self.options, node=f"{node_name()}:web", recycles=False)
                if self._stopping.is_set():  # it came before there was a worker to be asked
                    worker.state.ask_stop("the web process stops")
                if worker.run() is not ExitCode.BROKEN:
                    if not self._stopping.is_set():
                        logger.warning(
                            "The embedded worker stays off until its process starts anew: %s", worker.state.stop_asked
                        )
                    return
            except BaseException:
                logger.exception("The embedded worker cannot start")
            if time.monotonic() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            logger.error("The embedded worker starts again in %g s; the web process goes on", pause)
            # Jobs that have not heard of the break keep their threads: there are never more than one worker's.
            while not self._stopping.wait(pause) and self._worker is not None and self._worker.state.running():
                pass
            pause = min(2 * pause, LONGEST_PAUSE)


def with_worker(application: Application, **options: Any) -> Application:
    """Return an ASGI application that runs a worker in each process that serves it, from its start to its end.

    The server must speak the ``lifespan`` protocol, as uvicorn, hypercorn and granian do. The worker starts when
    ``application`` has started; at the end its running jobs end first. An application that knows no ``lifespan``, such
    as Django's, needs none.

    Args:
        application: what ``get_asgi_application()`` returned, or an application around it.
        options: as of ``EmbeddedWorker``.

    Raises:
        ImproperlyConfigured: an option is not allowed.
    """
    worker = EmbeddedWorker(**options)
    spoken = not process.switches.embedded

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal spoken
        if scope["type"] == "lifespan":
            spoken = True
            try:
                await _live(application, worker, scope, receive, send)
            finally:
                if worker.running:  # else the application has passed the end on; a server may cancel a second wait
                    await asyncio.to_thread(worker.stop)
        else:
            if not spoken:
                spoken = True
                logger.warning("The embedded worker does not run: its server does not send the lifespan protocol")
            await application(scope, receive, send)

    return serve


async def _live(application: Application, worker: EmbeddedWorker, scope: Scope, receive: Receive, send: Send) -> None:
    """Pass the lifespan protocol on to an application; answer in its place if it does not know it."""
    heard = False

    async def hear() -> Message:
        nonlocal heard
        heard = True
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await asyncio.to_thread(worker.stop)
        return message

    async def say(message: Message) -> None:
        if message["type"] == "lifespan.startup.complete":
            worker.start()
        await send(message)

    try:
        await application(scope, hear, say)
    except Exception:
        if heard:
            raise
    if not heard:  # it refuses the protocol, as Django does, or leaves it alone
        await hear()
        await say({"type": "lifespan.startup.complete"})
        await hear()
        await send({"type": "lifespan.shutdown.complete"})


def start_beside_runserver() -> None:
    """Start a worker in the process of ``runserver`` that serves, not in the one that watches its files."""
    serves = os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true" or "--noreload" in sys.argv
    if sys.argv[1:2] == ["runserver"] and serves:
        set_up_logging(as_json=False, verbosity=1)
        # A change of the code does not wait longer for running jobs.
        EmbeddedWorker(drain_timeout=min(RELOAD_PATIENCE, conf.settings.WORKER.drain_timeout)).start()
