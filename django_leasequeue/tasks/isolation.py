"""Tasks with ``isolate=True``, and suspects: each run is a process of its own, which a thread watches and may kill."""

from __future__ import annotations

import math
import os
import signal
import subprocess  # nosec B404  (this interpreter, with code of ours)
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import NamedTuple

from django.conf import settings
from django.db import connections

from ..conf.process import around_fork, in_forked_child
from ..engine import LeasedJob
from ..exceptions import InvalidOption, NotBegun
from ..worker.control import JobAborted, JobControl
from ..worker.durable import Suspended, Suspension
from .isolated import Begun, Completed, Failed, Progress, Renewed, Request

#: Seconds between two looks at whether the run is to stop.
LOOK = 0.1
#: Seconds that a process gets to start.
START = 60.0
#: Seconds for which no suspect is given a process after the system has refused one; and until when (monotonic).
REFUSED = 60.0
_refused_until = -math.inf
#: Held while a process is started. A child that a job forks in that moment would keep the pipe open whose end tells
#: that the process runs: the start would wait as long as that child lives.
_starting = threading.Lock()
around_fork(_starting.acquire, _starting.release)
in_forked_child(_starting.release)


class IsolatedTaskFailed(Exception):
    """A task has failed in a process of its own; the text is its traceback there."""

    def __init__(self, failed: Failed) -> None:
        self.failed = failed
        super().__init__(f"\n{failed.failure.traceback}")


class ProcessDied(Exception):
    """The process of an isolated task has ended by itself, without a result: killed, or by ``os._exit``."""


def can_isolate() -> bool:
    """Return whether a run can have a process of its own now."""
    return bool(getattr(settings, "SETTINGS_MODULE", None)) and time.monotonic() >= _refused_until


class _Process(NamedTuple):
    popen: subprocess.Popen[bytes]
    pipe: Connection

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self.pipe.close()


#: Processes that wait for another suspect: after a crash there may be many, and a start takes longer than most runs.
_idle: list[_Process] = []


def run_isolated(job: LeasedJob, control: JobControl, project: str, *, keep: bool = False) -> str | None:
    """Run a task in a process of its own and return its result as JSON; kill that when the run is to stop.

    ``keep``: the process may have run others before, which left nothing behind, and may run others later.
    """
    module = getattr(settings, "SETTINGS_MODULE", None)
    if not module:
        raise InvalidOption(
            "isolate=True runs a task in a process of its own, which has its settings from a module: name one in"
            " DJANGO_SETTINGS_MODULE in place of settings.configure()."
        )
    databases = {alias: connections[alias].settings_dict for alias in connections}
    request = Request(job, control.node, control.using, project, module, databases, keep, control.lease.until)
    while keep and (kept := _take_idle()) is not None:
        with suppress(_NotBegun):  # it ended meanwhile
            return _run_in(kept, request, control)
    try:
        return _run_in(_start(), request, control)
    except _NotBegun as error:
        raise _refused(error) from error


class _NotBegun(Exception):
    """The process has ended before it ran the task."""


def _take_idle() -> _Process | None:
    with suppress(IndexError):
        while True:
            process = _idle.pop()
            if not process.pipe.poll(0):
                return process
            process.kill()  # it has ended
    return None


def _run_in(process: _Process, request: Request, control: JobControl) -> str | None:
    done: Completed | None = None
    if control.restart_clock is not None:
        control.restart_clock(math.inf)
    try:
        with suppress(BrokenPipeError):
            process.pipe.send(request)
        done = _watch(process.popen, process.pipe, control)
    finally:
        if done is None or not done.goes_on:
            process.kill()
    if done.goes_on:
        _idle.append(process)
    control.settled, control.result_body, control.result_ttl_ms = done.settled, done.body, done.ttl_ms
    return done.result_json


def _start() -> _Process:
    try:
        ours, theirs = Pipe()
    except OSError as error:
        raise _refused(error) from error
    # Its imports are found where ours are; nothing of the job is shown in the list of processes.
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from django_leasequeue.tasks.isolated import main;"
        f" main({theirs.fileno()})"
    )
    with theirs:
        try:
            # A session of its own: what the task starts is killed with it.
            with _starting:
                popen = subprocess.Popen(  # nosec B603
                    [sys.executable, "-c", code],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise _refused(error) from error
    return _Process(popen, ours)


def _refused(why: object) -> NotBegun:
    """Note that no process can be had, and return the error that gives the job back."""
    global _refused_until
    _refused_until = time.monotonic() + REFUSED
    error = NotBegun(f"no process can be had for it: {why}")
    error.back_after_ms = 5_000
    return error


def _watch(process: subprocess.Popen[bytes], ours: Connection, control: JobControl) -> Completed:
    begun, begins_by, until = False, time.monotonic() + START, control.lease.until
    while True:
        # A timeout is raised in this thread, and ends the process as any other reason does.
        control.raise_if_aborted()
        # Asked before the look, which finds what was sent before the end. Forks of the process keep the pipe open.
        ended, said = process.poll() is not None, None
        with suppress(EOFError, ConnectionResetError, BrokenPipeError):
            if ours.poll(LOOK):
                said = ours.recv()
            elif not ended:
                if control.lease.until != until:
                    until = control.lease.until
                    ours.send(Renewed(until))
                if not begun and time.monotonic() > begins_by:
                    raise _NotBegun(f"its process did not begin within {START:g} s.")
                continue
        match said:
            case None:
                code = process.wait()
                how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit status {code}"
                if time.monotonic() >= control.lease.until:  # it has ended itself
                    control.abort("lease_lost")
                    control.raise_if_aborted()
                if not begun:
                    raise _NotBegun(f"its process ended before it began, by {how}.")
                control.process_died = True
                raise ProcessDied(f"the process of the task ended without a result, by {how}.")
            case Begun():
                begun = True
                if control.restart_clock is not None:
                    control.restart_clock(time.monotonic())
            case Progress(value):
                control.set_progress(value)
            case Completed():
                return said
            case Suspension():
                control.suspension = said
                raise Suspended
            case JobAborted() | NotBegun():
                raise said
            case _:
                raise IsolatedTaskFailed(said)
