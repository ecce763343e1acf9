"""The tasks of the soak, and the handler of its workers, which writes down what each run sees."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import signal
import threading
import time
import traceback
from contextlib import suppress

from django_leasequeue.engine import LeasedJob
from django_leasequeue.enums import JobFlag
from django_leasequeue.tasks import current, task
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.worker import JobAborted, JobControl

from .evidence import lease, monotonic, witness
from .runs import UNBEGUN

#: Bytes of one piece of memory. Nothing is written to it, so it costs address space, and no memory of the machine.
PIECE = 64 * 1024 * 1024


class TellingHandler(TaskHandler):
    """Runs tasks; says when a run starts and ends. A task's first argument is the number of its job."""

    def __init__(self, project: str = "") -> None:
        super().__init__(project)
        witness()

    def run(self, job: LeasedJob, control: JobControl) -> str | None:
        """Run a sync task."""
        number = started(job)
        how = "raised"
        try:
            found = super().run(job, control)
            how = "done"
            return found
        except JobAborted as error:
            how = "raised" if _begun(error) else UNBEGUN
            raise
        finally:
            witness().say("end", number, job.token, how, threading.get_native_id())

    async def arun(self, job: LeasedJob, control: JobControl) -> str | None:
        """Run an async task."""
        number = started(job)
        how = "raised"
        try:
            found = await super().arun(job, control)
            how = "done"
            return found
        except asyncio.CancelledError:
            if control.lost:
                witness().say("told", number, job.token, control.reason)
            raise
        finally:
            witness().say("end", number, job.token, how, threading.get_native_id())


def _begun(error: JobAborted) -> bool:
    """Whether the task's function was called: a frame of it, or of what it called, raised the error."""
    frames = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(name.startswith("tests.soak.") for name in frames[1:])


def started(job: LeasedJob) -> int:
    """Write down that a job starts; return the soak's number of it."""
    number: int = job.data["args"][0]
    witness().say(
        "start", number, job.seq, job.deliveries, job.token, monotonic(job.claimed_at, job.queue),
        lease(job.deadline, job.queue)[1], threading.get_native_id(), job.queue, bool(job.flags & JobFlag.SUSPECT),
    )  # fmt: skip
    return number


def _control() -> JobControl:
    control = current()
    assert control is not None
    return control


def pause(number: int, seconds: float, stubborn: bool) -> None:
    """Work for some seconds; when the job is told to stop, stop, or (stubborn) go on to the end."""
    control = _control()
    end = time.monotonic() + seconds
    if control.event.wait(seconds):
        witness().say("told", number, control.job.token, control.reason)
        if not stubborn:
            control.raise_if_aborted()
        time.sleep(max(0.0, end - time.monotonic()))


@task
def work(number: int, seconds: float, stubborn: bool = False) -> int:
    """Take some time."""
    pause(number, seconds, stubborn)
    return number


@task
async def awork(number: int, seconds: float) -> int:
    """Take some time in the event loop."""
    control = _control()
    try:
        reason = await asyncio.wait_for(control.wait_aborted(), seconds)
    except TimeoutError:
        return number
    witness().say("told", number, control.job.token, reason)
    control.raise_if_aborted()
    return number


@task
def fails(number: int) -> int:
    """Raise at the first delivery."""
    if _control().job.deliveries == 1:
        raise ValueError(f"job {number} fails once")
    return number


def _use_up_memory() -> None:
    """Take all that the process may have, and a little more; others in it feel that for a moment."""
    hoard: list[mmap.mmap] = []
    with suppress(OSError):
        while True:
            hoard.append(mmap.mmap(-1, PIECE))
    time.sleep(0.05)
    bytearray(PIECE)


@task
def harms(number: int, cause: str, times: int) -> int:
    """Do harm at the first deliveries, so many times; say so before where the process ends by it."""
    control = _control()
    if control.job.deliveries > times:
        return number
    name = f"task: {cause}"
    if cause in ("exit", "crash"):
        witness().say("last", number, control.job.token, name)
    if cause == "exit":
        os._exit(3)
    if cause == "crash":
        ctypes.string_at(0)
    if cause == "memory":
        _use_up_memory()
    if cause == "deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pause(number, 7.0, stubborn=True)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    return number
