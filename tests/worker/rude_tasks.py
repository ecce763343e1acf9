"""Tasks that leave something behind, and tasks that nothing of it may reach."""

import asyncio
import locale
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, connections, transaction
from django.utils import timezone, translation
from django.utils.translation import get_language
from psycopg import IsolationLevel

from django_leasequeue.tasks import Batch, current, task

if "RUDE_MAX_AGE" in os.environ:
    connections.settings["default"]["CONN_MAX_AGE"] = None

if "RUDE_POOL" in os.environ:
    connections.settings["default"].setdefault("OPTIONS", {})["pool"] = True

kept: list[Any] = []
closed: set[int] = set()


def names() -> Iterator[str]:
    with transaction.atomic():
        Group.objects.create(name="of a generator")
        yield "one"
        yield "two"


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


@task(max_attempts=1, timeout=60)
def leave(how: str) -> None:
    match how:
        case "block":
            transaction.atomic().__enter__()
            Group.objects.create(name=how)
        case "generator":
            kept.append(names())
            next(kept[-1])
        case "closed":
            transaction.atomic().__enter__()
            connection.close()
        case "begin":
            execute("BEGIN")
            Group.objects.create(name=how)
        case "failed":
            execute("BEGIN")
            with suppress(DatabaseError):
                execute("SELECT 1 / 0")
        case "copy":
            cursor = connection.cursor()
            kept.append(cursor.copy("COPY auth_group (name) FROM STDIN"))
            kept[-1].__enter__().write("copied\n")
        case "autocommit":
            transaction.set_autocommit(False)
            Group.objects.create(name=how)
        case "pipeline":
            connection.ensure_connection()
            connection.connection.pipeline().__enter__()
        case "read_only":
            connection.ensure_connection()
            connection.connection.set_read_only(True)
        case "isolation":
            connection.ensure_connection()
            connection.connection.set_isolation_level(IsolationLevel.SERIALIZABLE)
        case "session":
            execute("SET default_transaction_read_only = on")
        case "raw":
            connection.ensure_connection()
            connection.connection.close()
        case "wrapper":
            connection.ensure_connection()
            kept.append(connection.execute_wrapper(refuse))
            kept[-1].__enter__()
            connection.force_debug_cursor = True


def refuse(*_: Any) -> Any:
    raise AssertionError("a wrapper of another task")


class Unshown(Exception):
    """An error of which nothing can be shown."""

    def __str__(self) -> str:
        raise SystemExit

    def __bool__(self) -> bool:
        raise KeyboardInterrupt


def exits(*_: Any, **__: Any) -> None:
    raise SystemExit


@task(max_attempts=1, backoff=exits)
def fail_unshown() -> None:
    raise Unshown


@task(max_attempts=1, batch=2, batch_wait=30)
def echo_two(batch: Batch) -> None:
    for index, call in enumerate(batch):
        batch.ok(index, call.args[0])


@task(max_attempts=1)
def raise_in_loop() -> None:
    for name in names():
        raise ValueError(name)


@task(max_attempts=1, timeout=0.5)
def wait_in_query() -> None:
    execute("SELECT pg_sleep(60)")


@task(max_attempts=1, atomic=True)
def leave_in_atomic() -> None:
    transaction.atomic().__enter__()
    Group.objects.create(name="of an atomic task")


@task(atomic=True)
def ends_by_hand() -> None:
    execute("COMMIT")
    current().step("whole", int, atomic=True)


@task
def closes_in_a_block() -> None:
    with transaction.atomic():
        connection.close()


@task(max_attempts=1, isolate=True)
def leave_in_isolation(how: str) -> None:
    leave.func(how)


@task(max_attempts=1, isolate=True)
async def aleave_in_isolation(how: str) -> None:
    await sync_to_async(leave.func)(how)


@task(max_attempts=1)
def write(name: str) -> None:
    """Nothing of others is here: the innocent one."""
    assert connection.get_autocommit()
    assert not any((connection.in_atomic_block, connection.execute_wrappers, connection.force_debug_cursor))
    assert (get_language(), timezone.get_current_timezone_name()) == (settings.LANGUAGE_CODE, settings.TIME_ZONE)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        assert cursor.fetchone() == ("read committed",)
        Group.objects.create(name=name)


@task(max_attempts=1)
def close_of_others(name: str) -> None:
    """End the generators that others have left in the midst of a transaction of one's own."""
    with transaction.atomic():
        Group.objects.create(name=name)
        while kept:
            getattr(kept.pop(), "close", int)()


@task(max_attempts=1)
def disturb(how: str) -> None:
    """Change what all threads of a process share, or all code of a thread."""
    match how:
        case "directory":
            os.chdir("/")
        case "files":
            if 0 not in closed:  # by now the number may be of a socket that another job's connection has
                closed.add(0)
                os.close(0)
        case "mask":
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        case "language":
            translation.activate("de")
            timezone.activate("Asia/Tokyo")
        case "umask":
            os.umask(0o077)
        case "locale":
            locale.setlocale(locale.LC_ALL, "C")


# In coroutines


@task(max_attempts=1)
async def aleave(how: str) -> None:
    await sync_to_async(leave.func)(how)


@task(max_attempts=1)
async def across(name: str, seconds: float, fails: bool) -> None:
    """A transaction over several parts, while others write beside it."""
    block = transaction.atomic()
    await sync_to_async(block.__enter__)()
    await Group.objects.acreate(name=name)
    await asyncio.sleep(seconds)
    await sync_to_async(block.__exit__)(*((ValueError, None, None) if fails else (None, None, None)))


@task(max_attempts=1)
async def awrite(name: str) -> None:
    await Group.objects.acreate(name=name)


@task(max_attempts=1)
async def read(count: int, seconds: float) -> int:
    read = 0
    async for _ in Group.objects.order_by("id").aiterator(chunk_size=1):
        read += 1
        await asyncio.sleep(seconds)
    assert read >= count
    return read


@task(max_attempts=1)
async def block(folder: str) -> None:
    (Path(folder) / "blocks").touch()
    await sync_to_async(wait_for)(str(Path(folder) / "go on"))


def wait_for(path: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not Path(path).exists():
        assert time.monotonic() < end, path
        time.sleep(0.02)


@task(max_attempts=1)
async def nothing() -> None: ...


async def _exits(code: int) -> None:
    await asyncio.sleep(0)
    if code < 0:
        raise KeyboardInterrupt
    sys.exit(code)


@task(max_attempts=1)
async def exit_in_child(how: str, code: int) -> None:
    if how == "gather":
        await asyncio.gather(_exits(code), asyncio.sleep(60))
    elif how == "group":
        async with asyncio.TaskGroup() as group:
            group.create_task(_exits(code))
    else:
        kept.append(asyncio.create_task(_exits(code)))
        await asyncio.sleep(60)


@task(max_attempts=1)
async def asleep(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()


# Of processes


@task(max_attempts=1)
def fork(how: str, folder: str) -> int:
    """Fork a child that does as said, and note its number in the folder."""
    child = os.fork()
    if child:
        (Path(folder) / "child").write_text(str(child))
        if how == "stays":
            time.sleep(0.2)
            return child
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if how == "stays":
        time.sleep(600)
    if how == "raises":
        raise ValueError("in the child")
    if how == "exits":
        sys.exit(7)
    if how == "writes":
        connections.close_all()
        Group.objects.create(name=f"of the child {os.getpid()}")
    return 0


@task(max_attempts=1)
async def afork() -> int:
    child = await sync_to_async(os.fork)()
    _, status = await sync_to_async(os.waitpid)(child, 0)
    return os.waitstatus_to_exitcode(status)


@task(max_attempts=1)
def pool() -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        pool.apply_async(time.sleep, (600,)).get(timeout=0.5)


@task(max_attempts=1)
def terminate() -> int:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    process.start()
    process.terminate()
    process.join(20)
    return process.exitcode or 0


@task(max_attempts=1)
def interrupt() -> int:
    """Start a program, and end it as a terminal does."""
    program = subprocess.Popen(["sleep", "600"])
    program.send_signal(signal.SIGINT)
    try:
        return program.wait(20)
    finally:
        program.kill()


@task(max_attempts=1)
def leave_thread(how: str, seconds: float) -> None:
    if how == "thread":
        threading.Thread(target=linger, args=(seconds,), name="left-behind", daemon=False).start()
    else:
        ThreadPoolExecutor(1, "left-behind").submit(linger, seconds)


def linger(seconds: float) -> None:
    time.sleep(seconds)


# Of schedules, and receivers that block


@task(max_attempts=1)
def tick() -> None:
    """What recurs, and is innocent."""
    Group.objects.create(name=f"tick {uuid4()}")


@task(max_attempts=1, backoff=0)
def fails_at_its_tick() -> None:
    raise ValueError("at each tick")


@task(max_attempts=1)
def blocked() -> None:
    """Its receivers block where it is enqueued, started and finished."""


@task(max_attempts=1)
def enqueue_blocked() -> None:
    blocked.enqueue()
