"""Tasks with ``isolate=True``: each run is a process of its own, which the worker's thread watches and may kill.

What runs in that process stands at the end, from ``main`` on: it imports Django's models only after ``django.setup()``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess  # nosec B404  (this interpreter, with code of ours)
import sys
import threading
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connections
from django.utils.module_loading import import_string

from ..engine import Failure, LeasedJob
from ..exceptions import InvalidOption, NotBegun
from ..worker.control import GiveUp, JobAborted, JobControl, Retry
from ..worker.durable import Suspended, Suspension

#: Seconds between two looks at whether the run is to stop.
LOOK = 0.1


class Request(NamedTuple):
    """What the process is to run: the first message that it gets."""

    job: LeasedJob
    node: str
    using: str | None
    project: str
    settings: str
    #: Of Django's connections, by alias: a process that tests start has other ones than its settings say.
    databases: dict[str, dict[str, Any]]


class Completed(NamedTuple):
    """The run has returned: what ``TaskHandler.run`` returns, and what it has left on its control."""

    result_json: str | None
    settled: bool
    body: bytes | None
    ttl_ms: int | None


class Failed(NamedTuple):
    """The run has raised: what ``TaskHandler.failed`` made of it."""

    failure: Failure
    decision: Retry | GiveUp


class Progress(NamedTuple):
    """The task has said how far it is."""

    value: Any


class IsolatedTaskFailed(Exception):
    """A task has failed in a process of its own; the text is its traceback there."""

    def __init__(self, failed: Failed) -> None:
        self.failed = failed
        super().__init__(f"\n{failed.failure.traceback}")


class ProcessDied(Exception):
    """The process of an isolated task has ended by itself, without a result: killed, or by ``os._exit``."""


def run_isolated(job: LeasedJob, control: JobControl, project: str) -> str | None:
    """Run a task in a process of its own and return its result as JSON; kill that when the run is to stop."""
    module = getattr(settings, "SETTINGS_MODULE", None)
    if not module:
        raise InvalidOption(
            "isolate=True runs a task in a process of its own, which has its settings from a module: name one in"
            " DJANGO_SETTINGS_MODULE in place of settings.configure()."
        )
    databases = {alias: connections[alias].settings_dict for alias in connections}
    ours, theirs = Pipe()
    # Its imports are found where ours are; nothing of the job is shown in the list of processes.
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from django_leasequeue.tasks.isolation import main;"
        f" main({theirs.fileno()})"
    )
    with ours:
        with theirs:
            # A session of its own: what the task starts is killed with it.
            process = subprocess.Popen(  # nosec B603
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            with suppress(BrokenPipeError):
                ours.send(Request(job, control.node, control.using, project, module, databases))
            return _watch(process, ours, control)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _watch(process: subprocess.Popen[bytes], ours: Connection, control: JobControl) -> str | None:
    while True:
        # A timeout is raised in this thread, and ends the process as any other reason does.
        control.raise_if_aborted()
        # Asked before the look, which finds what was sent before the end. Forks of the process keep the pipe open.
        ended, said = process.poll() is not None, None
        with suppress(EOFError, ConnectionResetError):
            if ours.poll(LOOK):
                said = ours.recv()
            elif not ended:
                continue
        match said:
            case None:
                code = process.wait()
                how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit status {code}"
                raise ProcessDied(f"the process of the task ended without a result, by {how}.")
            case Progress(value):
                control.set_progress(value)
            case Completed():
                control.settled, control.result_body, control.result_ttl_ms = said.settled, said.body, said.ttl_ms
                return said.result_json
            case Suspension():
                control.suspension = said
                raise Suspended
            case JobAborted() | NotBegun():
                raise said
            case _:
                raise IsolatedTaskFailed(said)


# In the process of the task

#: One message at a time in the pipe: threads of the task may all say how far they are.
_sending = threading.Lock()


def main(descriptor: int) -> None:
    """Run the job that comes through the pipe with this descriptor, and end the process."""
    connection = Connection(descriptor)
    code = 1
    try:
        request: Request = connection.recv()
        os.environ["DJANGO_SETTINGS_MODULE"] = request.settings
        said = _run(request, connection)
        with _sending:
            connection.send(said)
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Threads that the task has left do not keep the process.
        os._exit(code)


def _run(request: Request, connection: Connection) -> Any:
    import django  # the settings are known by now

    django.setup()

    for alias, values in request.databases.items():
        connections[alias].settings_dict.update(values)
    threading.Thread(target=_end_with_worker, args=(connection,), daemon=True).start()

    class Control(JobControl):
        def set_progress(self, value: Any) -> None:
            super().set_progress(value)
            with _sending:
                connection.send(Progress(value))

    job, control = request.job, Control(request.job, request.node, request.using)
    handler: Any = import_string("django_leasequeue.tasks.handler.TaskHandler")(request.project, inside=True)
    try:
        text = asyncio.run(handler.arun(job, control)) if handler.is_async(job) else handler.run(job, control)
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


def _end_with_worker(connection: Connection) -> None:
    """End the process, and what it has started, with the worker: the pipe ends then."""
    try:
        connection.recv()
    except (EOFError, OSError):
        os.killpg(0, signal.SIGKILL)
