"""Tasks whose function takes many calls."""

import asyncio
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.db import connection

from django_leasequeue.tasks import Batch, FailForGood, Limit, step, task
from tests.tasks.durable_tasks import control

#: Lets ``blocks`` end.
free = threading.Event()
#: Of each run, the arguments of its calls.
runs: list[list[Any]] = []


def note(batch: Batch) -> None:
    runs.append([call.args[0] if call.args else call.kwargs for call in batch])


def answer(batch: Batch) -> None:
    """Answer each call as its argument says."""
    note(batch)
    for index, call in enumerate(batch):
        match call.args[0]:
            case "ok" | int():
                batch.ok(index, [call.id, call.attempt, call.args[0]])
            case "fail":
                batch.fail(index, ValueError("no luck"))
            case "for good":
                batch.fail(index, FailForGood("never"))
            case "no json":
                batch.ok(index, object())
    if any(call.args[0] == "raise" for call in batch):
        raise KeyError("all")


@task
def blocks() -> None:
    assert free.wait(60)


@task(batch=100, batch_wait=0.3, max_attempts=2, backoff=0)
def mixed(batch: Batch) -> None:
    answer(batch)


@task(batch=100, batch_wait=0.3, max_attempts=2, backoff=0)
async def amixed(batch: Batch) -> None:
    await asyncio.sleep(0)
    answer(batch)


@task(batch=10, batch_wait=60)
def tens(batch: Batch) -> None:
    note(batch)


@task(batch=10, batch_wait=0.2, batch_by="tenant")
def by_tenant(batch: Batch) -> None:
    note(batch)


@task(batch=10, batch_wait=60)
async def waits(batch: Batch) -> None:
    note(batch)


@task(batch=10, batch_wait=0.2, timeout=0.2, max_attempts=1)
def sleeps(batch: Batch) -> None:
    batch.ok(0, "before")
    while True:
        time.sleep(0.01)


@task(batch=10, batch_wait=0.2, timeout=0.2, max_attempts=1)
async def asleeps(batch: Batch) -> None:
    batch.ok(0, "before")
    await asyncio.sleep(600)


@task(batch=10, batch_wait=0.2, max_attempts=1)
def leaves_transaction(batch: Batch) -> None:
    for index in range(len(batch)):
        batch.ok(index)
    connection.cursor().execute("BEGIN")


@step
def a_step() -> int:
    return 1


@task(batch=10, batch_wait=0.2, max_attempts=1)
def steps(batch: Batch) -> None:
    job = control()
    for index, call in enumerate(batch):
        try:
            {
                "step": a_step,
                "sleep": lambda: job.sleep("nap", seconds=1),
                "progress": lambda: job.set_progress(1),
                "replace": lambda: job.replace(None),
                "job": lambda: job.job,
            }[call.args[0]]()
        except Exception as error:  # noqa: BLE001  (the test looks at it)
            batch.ok(index, str(error))


@task(batch=10, batch_wait=0.2, limit=Limit("customer:{customer}", concurrency=3))
def limited(batch: Batch) -> None:
    note(batch)


@task(batch=100, batch_wait=1)
def kills_first(batch: Batch) -> None:
    """Take the process along on the first attempt."""
    folder = Path(batch[0].args[0])
    with (folder / "runs").open("a", encoding="utf-8") as file:
        file.write(f"{len(batch)} {batch[0].attempt}\n")
    if batch[0].attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@task(batch=10, batch_wait=0.2)
def until_lost(batch: Batch) -> None:
    """Go on until a call is to stop; answer all."""
    note(batch)
    while not any(call.lost for call in batch):
        time.sleep(0.01)
    for index, call in enumerate(batch):
        batch.ok(index, call.lost)


@task(batch=10, batch_wait=0.2)
async def auntil_stopped(batch: Batch) -> None:
    note(batch)
    await asyncio.sleep(600)


@task(batch=10, max_attempts=1)
def returns(batch: Batch) -> int:
    return 5


@task(batch=10, max_attempts=1)
def breaks(batch: Batch) -> None:
    connection.cursor().execute("SELECT 1 / 0")


@task(batch=10, batch_wait=0.2, timeout=0.1, max_attempts=1)
def stubborn(batch: Batch) -> None:
    """Take no notice of the timeout."""
    end = time.monotonic() + 3
    while time.monotonic() < end:
        with suppress(Exception):
            time.sleep(0.05)
