"""Tasks that run in a process of their own."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Group

from django_leasequeue.tasks import FailForGood, task
from tests.tasks.durable_tasks import control


@task(isolate=True)
def pid(*before: Any) -> list[Any]:
    return [os.getpid(), *before]


@task(isolate=True, tags={"customer": 7})
async def apid() -> int:
    await pid.aenqueue()
    return os.getpid()


@task(isolate=True, backoff=0, max_attempts=2)
def fail(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "fork" and not os.fork():
        time.sleep(600)
    if how in ("signal", "fork"):
        os.kill(os.getpid(), signal.SIGSEGV)
    raise {"good": FailForGood, "value": ValueError}[how]("no")


@task(isolate=True, takes_context=True)
def report(context: Any, folder: str) -> int:
    """Say its number and that of a process that it has started, and go on until it is killed."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    context.control.set_progress("half")
    path = Path(folder) / "new"
    path.write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
    path.rename(Path(folder) / "pids")
    try:
        time.sleep(600)
    except BaseException:  # noqa: BLE001  (no word stops it)
        time.sleep(600)
    return 0


@task(isolate=True)
def chatter() -> str:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(control().set_progress, ["x" * 50_000] * 100))
    return "done"


@task(isolate=True, atomic=True)
def write(name: str) -> int:
    return int(Group.objects.create(name=name).pk)


@task(isolate=True)
def nap() -> list[int]:
    first = control().step("first", os.getpid)
    control().sleep("short", seconds=0.01)
    return [first, os.getpid()]
