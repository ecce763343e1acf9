"""The tasks of the soak, and the handler of its workers, which writes down what each run sees."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import secrets
import signal
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.db import connection

from django_leasequeue.engine import LeasedJob
from django_leasequeue.enums import JobFlag
from django_leasequeue.exceptions import EventTimeout
from django_leasequeue.tasks import FailForGood, Limit, current, task
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.tasks.isolation import can_isolate
from django_leasequeue.worker import JobAborted, JobControl
from django_leasequeue.worker.durable import Suspended

from .evidence import DIRECTORY, TIMEOUT, WORKER, lease, monotonic, witness
from .runs import UNBEGUN

#: Bytes of one piece of memory. Nothing is written to it, so it costs address space, and no memory of the machine.
PIECE = 64 * 1024 * 1024

#: A file of a job's number in here: it does not fail any more.
HEALED = "healed"

ONE = Limit("one:{key}", concurrency=1)
TWO = Limit("two:{key}", concurrency=2)
#: Starts, and the seconds in which so many are allowed; too few for the small part of them that may come at once.
RATE, PER = 8, 3
PACE = Limit("pace", rate=RATE, per=PER)

#: The rows that atomic steps write: no constraint of the table stands in the way of a second one.
#: Some of their commits take a moment, in which the job may be cancelled or its lease may end.
TABLE = """
CREATE TABLE IF NOT EXISTS soak_effect (number bigint, place int);
CREATE INDEX ON soak_effect (number);
CREATE FUNCTION soak_slow_commit() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_sleep(CASE WHEN random() < 0.3 THEN random() * 0.3 ELSE 0 END); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON soak_effect DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION soak_slow_commit();
"""
WRITE = "INSERT INTO soak_effect (number, place) VALUES (%s, %s)"
COUNT = "SELECT count(*) FROM soak_effect WHERE number = %s AND place = %s"
PAID = "SELECT count(*) FROM soak_effect WHERE number = %s"
#: The atomic steps of a job that is cancelled while it runs.
PAYMENTS = 15

#: A part of a job: its kind (``plain``, ``atomic``, ``sleep``, ``event``), and how many seconds it takes.
Part = tuple[str, float]


class TellingHandler(TaskHandler):
    """Runs tasks; says when a run starts and ends. A task's first argument is the number of its job."""

    def __init__(self, project: str = "") -> None:
        super().__init__(project)
        os.environ[WORKER] = witness().who

    def run(self, job: LeasedJob, control: JobControl) -> str | None:
        number = started(job)
        how = "raised"
        try:
            found = super().run(job, control)
            how = "done"
            return found
        except JobAborted as error:
            if apart := bool(job.flags & JobFlag.SUSPECT):
                # Its process was killed before it could say so.
                witness().say("told", number, job.token, control.reason)
            how = "raised" if apart or _begun(error) else UNBEGUN
            raise
        finally:
            witness().say("end", number, job.token, how, threading.get_native_id())

    async def arun(self, job: LeasedJob, control: JobControl) -> str | None:
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
def work(number: int, seconds: float = 0.002, stubborn: bool = False, key: str = "") -> int:
    pause(number, seconds, stubborn)
    return number


@task
async def awork(number: int, seconds: float) -> int:
    control = _control()
    try:
        reason = await asyncio.wait_for(control.wait_aborted(), seconds)
    except TimeoutError:
        return number
    witness().say("told", number, control.job.token, reason)
    control.raise_if_aborted()
    return number


@task
def fails(number: int, key: str = "") -> int:
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


def say_last(number: int, claim: int, cause: str) -> None:
    """Say that the worker's process ends now; that of a suspect is its own affair."""
    if not witness().apart:
        witness().say("last", number, claim, cause, can_isolate())


@task(backoff=0)
def harms(number: int, cause: str, times: int) -> int:
    """Do harm at the first deliveries, so many times; say so before where the process ends by it."""
    control = _control()
    if control.job.deliveries > times:
        return number
    name = f"task: {cause}"
    if cause in ("exit", "crash"):
        say_last(number, control.job.token, name)
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


# Of limits and workflows


def healed(number: int) -> Path:
    return Path(os.environ[DIRECTORY]) / HEALED / str(number)


@task
def lingers(number: int) -> int:
    pause(number, 0.3, stubborn=True)
    return number


@task
def doomed(number: int, key: str = "") -> int:
    if not healed(number).exists():
        raise ValueError(f"job {number} is not healed")
    return number


@task
def fails_for_ever(number: int) -> int:
    raise ValueError(f"job {number} is not to be healed")


@task
def joins(found: Any, number: int, expected: Any, tolerant: bool = False, key: str = "") -> int:
    """Say whether it got what those before it returned; with ``tolerant`` an outcome of each, some of them failures."""
    if tolerant:
        right = len(found) == len(expected) and all(
            one.value == two if one.ok else one.error_type for one, two in zip(found, expected, strict=True)
        )
    else:
        right = found == expected
    witness().say("took", number, right)
    return number


@task
def strikes(number: int, delay: float) -> int:
    """Have the process killed at the first delivery, a moment later: while it runs, ends, or is written down."""
    control = _control()
    if control.job.deliveries == 1:
        threading.Thread(target=_strike, args=(number, control.job.token, delay), daemon=True).start()
    return number


def _strike(number: int, claim: int, delay: float) -> None:
    time.sleep(delay)
    say_last(number, claim, "task: strike")
    os.kill(os.getpid(), signal.SIGKILL)


@task(key="unique-{name}")
def unique(number: int, name: str, seconds: float = 0.002) -> int:
    pause(number, seconds, stubborn=False)
    return number


# Of several steps


def event(number: int, place: int) -> str:
    return f"soak:{number}:{place}"


@task
def pays(number: int) -> int:
    for place in range(PAYMENTS):
        _control().step("pay", _pay, number, place, atomic=True)
    return number


def _pay(number: int, place: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(WRITE, [number, place])


@task(max_attempts=10_000)
def repents(number: int) -> None:
    for place in range(PAYMENTS):
        _control().step("pay", _pays_to, number, place, atomic=True, undo=repay)
    raise FailForGood("what was paid is paid back")


def _pays_to(number: int, place: int) -> list[int]:
    _pay(number, place)
    return [number, place]


def repay(paid: list[int]) -> None:
    time.sleep(0.05)  # so that there is a middle to be killed in
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM soak_effect WHERE number = %s AND place = %s", paid)
        rows = cursor.rowcount
    witness().say("repaid", *paid, rows)


@task
def durable(number: int, parts: list[Part]) -> int:
    control = _control()
    claim = control.job.token

    def does(place: int, atomic: bool, seconds: float) -> str:
        value = secrets.token_hex(4)
        if atomic:
            with connection.cursor() as cursor:
                cursor.execute(WRITE, [number, place])
        time.sleep(seconds)
        # At the end: what was stopped on the way may have lost the lease by now.
        witness().say("did", number, place, claim, value)
        return value

    for place, (kind, seconds) in enumerate(parts):
        witness().say("comes", number, place, claim, kind, seconds)
        value: Any = None
        try:
            if kind == "sleep":
                control.sleep(f"sleep {place}", seconds=seconds)
            elif kind == "event":
                value = control.wait_for(event(number, place), TIMEOUT)
            else:
                value = control.step(f"{kind} {place}", does, place, kind == "atomic", seconds, atomic=kind == "atomic")
        except Suspended:
            witness().say("suspended", number, place, claim)
            raise
        except EventTimeout:
            value = "timeout"
        witness().say("passed", number, place, claim, value)
        if kind == "atomic":
            with connection.cursor() as cursor:
                cursor.execute(COUNT, [number, place])
                witness().say("effect", number, place, claim, cursor.fetchone()[0])
    return number
