"""The process of an isolated task: it runs the task and exchanges messages with the worker.

It imports Django's models only after ``django.setup()``.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.db import connections
from django.utils.module_loading import import_string

from ..conf import process
from ..engine import Failure, LeasedJob
from ..exceptions import NotBegun
from ..worker.control import GiveUp, JobAborted, JobControl, Retry
from ..worker.durable import Suspended
from ..worker.edge import check_edge


class Request(NamedTuple):
    """The job that the process runs: the first message that it gets."""

    job: LeasedJob
    node: str
    using: str | None
    project: str
    settings: str
    #: Of Django's connections, by alias: a process that tests start has other ones than its settings say.
    databases: dict[str, dict[str, Any]]
    #: Whether the process may run others after it.
    keep: bool
    #: Until when the lease is sure (monotonic, the same clock for all processes of a machine).
    until: float


@dataclass(slots=True)
class Renewed:
    """The lease is sure until then."""

    until: float


class Begun(NamedTuple):
    """The process can run the task, and does so now."""


class Completed(NamedTuple):
    """The run has returned: the return value of ``TaskHandler.run``, and the state of its control."""

    result_json: str | None
    settled: bool
    body: bytes | None
    ttl_ms: int | None
    #: Whether the process can run another job: this one has left nothing behind.
    goes_on: bool = False


class Failed(NamedTuple):
    """The run has raised: what ``TaskHandler.failed`` made of it."""

    failure: Failure
    decision: Retry | GiveUp


class Progress(NamedTuple):
    """The task has said how far it is."""

    value: Any


#: One message at a time in the pipe: threads of the task may all say how far they are.
_sending = threading.Lock()
#: The lease of the job that runs here.
_lease = Renewed(math.inf)
#: Seconds for which a process waits for another job.
IDLE = 5.0


def main(descriptor: int) -> None:
    """Run the job that comes through the pipe with this descriptor, perhaps others after it, and end the process."""
    process.own_thread()
    connection = Connection(descriptor)
    inbox: SimpleQueue[Request] = SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    code = 1
    try:
        request = inbox.get()
        os.environ["DJANGO_SETTINGS_MODULE"] = request.settings
        import django  # the settings are known by now

        django.setup()
        # The thread for sync code of coroutines stays, once there is one.
        asyncio.run(sync_to_async(threading.get_ident)())
        threads = set(threading.enumerate())
        goes_on = True
        while goes_on:
            said = _run(request, connection)
            _lease.until = math.inf
            goes_on = False
            if request.keep and isinstance(said, Completed):
                goes_on = set(threading.enumerate()) <= threads and not _has_children()
                said = said._replace(goes_on=goes_on)
            with _sending:
                connection.send(said)
            if goes_on:
                request = inbox.get(timeout=IDLE)
        code = 0
    except Empty:
        code = 0
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # the task may have closed them
                stream.flush()
        # Threads that the task has left do not keep the process.
        os._exit(code)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _run(request: Request, connection: Connection) -> Any:
    for alias, values in request.databases.items():
        connections[alias].settings_dict.update(values)

    class Control(JobControl):
        def set_progress(self, value: Any) -> None:
            super().set_progress(value)
            with _sending:
                connection.send(Progress(value))

    job, control = request.job, Control(request.job, request.node, request.using)
    handler: Any = import_string("django_leasequeue.tasks.handler.TaskHandler")(request.project, inside=True)
    with _sending:
        connection.send(Begun())
    try:
        if handler.is_async(job):
            text = asyncio.run(_arun(handler, job, control))
        else:
            text = handler.run(job, control)
            check_edge(control)
    except Suspended:
        return control.suspension
    except NotBegun as error:
        # Without its cause, which may not go through the pipe.
        found = NotBegun(str(error))
        found.back_after_ms = error.back_after_ms
        return found
    except JobAborted as error:
        return error
    except BaseException as error:  # noqa: BLE001  (a task may raise anything)
        return Failed(*handler.failed(job, error))
    finally:
        connections.close_all()
    return Completed(text, control.settled, control.result_body, control.result_ttl_ms)


async def _arun(handler: Any, job: LeasedJob, control: JobControl) -> str | None:
    text: str | None = await handler.arun(job, control)
    await sync_to_async(check_edge)(control)
    return text


def _read(connection: Connection, inbox: SimpleQueue[Request]) -> None:
    """Pass requests on; end the process, and what it has started, with the worker (the pipe ends), or with the lease.

    The worker says when the lease is renewed. One that hangs does not, and its job must not run beside the next one.
    """
    try:
        while True:
            left = None if _lease.until == math.inf else max(0.0, _lease.until - time.monotonic())
            # Looked at also when the time is over: what renews the lease may have waited while this process started.
            if connection.poll(left):
                said = connection.recv()
                _lease.until = said.until
                if isinstance(said, Request):
                    inbox.put(said)
            elif _lease.until <= time.monotonic():
                break
    except (EOFError, OSError):
        pass
    os.killpg(0, signal.SIGKILL)
