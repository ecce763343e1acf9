"""The process of a task with ``isolate=True``: sets Django up, runs one job, tells the worker how it ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..worker.control import JobControl
    from .isolation import Request

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
    from django.db import connections

    from ..exceptions import PayloadAway
    from ..worker.control import JobAborted, Suspended
    from .handler import TaskHandler
    from .isolation import Away, Completed, Failed

    for alias, values in request.databases.items():
        connections[alias].settings_dict.update(values)
    threading.Thread(target=_watch, args=(connection,), daemon=True).start()
    job, control = request.job, _control(request, connection)
    handler = TaskHandler(request.project, inside=True)
    try:
        text = asyncio.run(handler.arun(job, control)) if handler.is_async(job) else handler.run(job, control)
    except Suspended:
        return control.suspension
    except PayloadAway as error:
        return Away(str(error))
    except JobAborted as error:
        return error
    except BaseException as error:  # noqa: BLE001  (a task may raise anything)
        return Failed(*handler.failed(job, error))
    finally:
        connections.close_all()
    return Completed(text, control.settled, control.result_body, control.result_ttl_ms)


def _control(request: Request, connection: Connection) -> JobControl:
    from ..worker.control import JobControl
    from .isolation import Progress

    class _Control(JobControl):
        def set_progress(self, value: Any) -> None:
            super().set_progress(value)
            with _sending:
                connection.send(Progress(value))

    return _Control(request.job, request.node, request.using)


def _watch(connection: Connection) -> None:
    """End the process, and what it has started, with the worker: the pipe ends then."""
    try:
        connection.recv()
    except (EOFError, OSError):
        os.killpg(0, signal.SIGKILL)
