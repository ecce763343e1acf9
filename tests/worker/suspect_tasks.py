"""Tasks for suspects: they note where they run."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async

from django_leasequeue.tasks import current, task


def note(folder: str, name: str) -> None:
    """Leave a file that names the process of this attempt."""
    (Path(folder) / f"{name}.{os.getpid()}").write_text("", encoding="utf-8")


def processes(folder: Path, name: str) -> list[int]:
    """The processes in which a job has started."""
    return [int(path.suffix[1:]) for path in folder.glob(f"{name}.*")]


@task
def until(folder: str, name: str, go: str = "go") -> int:
    """Go on until a file is there."""
    note(folder, name)
    while not (Path(folder) / go).exists():
        time.sleep(0.01)
    return os.getpid()


@task
async def auntil(folder: str, name: str, go: str = "go") -> int:
    note(folder, name)
    while not (Path(folder) / go).exists():
        await asyncio.sleep(0.01)
    return os.getpid()


@task(max_attempts=4, backoff=0)
def poison(folder: str, name: str) -> None:
    note(folder, name)
    os.kill(os.getpid(), signal.SIGKILL)


@task(max_attempts=4, backoff=0)
async def apoison(folder: str, name: str) -> None:
    note(folder, name)
    os.kill(os.getpid(), signal.SIGKILL)


@task(backoff=0)
def fail(folder: str, name: str) -> int:
    note(folder, name)
    raise ValueError("no")


@task
def innocent(folder: str, name: str) -> int:
    note(folder, name)
    time.sleep(0.01)
    return os.getpid()


@task
async def ainnocent(folder: str, name: str) -> int:
    return await sync_to_async(innocent.func)(folder, name)


@task
def leaves_thread(folder: str, name: str) -> None:
    note(folder, name)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


@task
def leaves_child(folder: str, name: str) -> None:
    note(folder, name)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


@task
def durable(folder: str, name: str) -> list[Any]:
    control: Any = current()
    control.set_progress("half")
    first = control.step("first", os.getpid)
    control.sleep("short", seconds=0.01)
    note(folder, name)
    return [first, os.getpid()]
