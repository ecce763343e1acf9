"""A handler whose jobs say themselves what they do, for worker processes and for workers in the test's own."""

import asyncio
import logging
import os
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from django_leasequeue.engine import Failure, LeasedJob
from django_leasequeue.worker import GiveUp, JobControl, Retry

#: Options of workers inside web processes.
EMBEDDED: dict[str, Any] = {"queues": ["work"], "reaper": False, "handler": f"{__name__}.ScriptHandler"}


def note(job: LeasedJob, word: str) -> None:
    """Append a line about the job to the file that it names: whole lines, also from several processes."""
    path = (job.data or {}).get("file")
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{job.key or job.seq} {word} {os.getpid()}\n".encode())
        os.close(descriptor)


def lines(path: Path) -> list[tuple[str, str, int]]:
    """Return what jobs noted: (key, word, process)."""
    if not path.exists():
        return []
    found = [line.split() for line in path.read_text().splitlines()]
    return [(key, word, int(pid)) for key, word, pid in found]


def times(path: Path, word: str) -> int:
    """How often jobs noted this word."""
    return sum(noted == word for _, noted, _ in lines(path))


class ScriptHandler:
    """Runs ``{"do": word, ...}``; ``"async": true`` in the event loop."""

    def __init__(self, project: str = "") -> None:
        self.told: list[tuple[str, int]] = []

    def is_async(self, job: LeasedJob) -> bool:
        return bool((job.data or {}).get("async"))

    def timeout(self, job: LeasedJob, default: float | None = None) -> tuple[float | None, float | None]:
        data = job.data or {}
        return data.get("soft", default), data.get("hard")

    def run(self, job: LeasedJob, control: JobControl) -> str | None:
        note(job, "start")
        data: dict[str, Any] = job.data or {}
        match data.get("do"):
            case "sleep":
                end = time.monotonic() + data["seconds"]
                while time.monotonic() < end:
                    time.sleep(0.01)
            case "hang":
                threading.Event().wait()
            case "wait":
                control.event.wait()
                note(job, control.reason)
                control.raise_if_aborted()
            case "raise":
                raise ValueError(data.get("message", "asked to"))
            case "return":
                return str(data["json"])
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit" if job.deliveries <= data.get("times", 99):
                os._exit(data.get("code", 3))
            case "noise":  # of a library, of Python and of a thread
                logging.getLogger("some.library").warning("said by a library")
                warnings.warn("beware", stacklevel=1)
                thread = threading.Thread(target=lambda: 1 / 0, name="noisy")
                thread.start()
                thread.join()
            case "progress":
                control.set_progress(data["value"])
                control.event.wait(data["seconds"])
        note(job, "end")
        return None

    async def arun(self, job: LeasedJob, control: JobControl) -> str | None:
        note(job, "start")
        data: dict[str, Any] = job.data or {}
        match data.get("do"):
            case "sleep":
                await asyncio.sleep(data["seconds"])
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "wait":
                note(job, await control.wait_aborted())
                control.raise_if_aborted()
            case "raise":
                raise ValueError(data.get("message", "asked to"))
            case "return":
                return str(data["json"])
        note(job, "end")
        return None

    def failed(self, job: LeasedJob, error: BaseException) -> tuple[Failure, Retry | GiveUp]:
        data: dict[str, Any] = job.data or {}
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        then = GiveUp() if data.get("give_up") else Retry(data.get("delay"))
        return Failure(kind, str(error), "a traceback", kind), then

    def settled(self, job: LeasedJob, ending: str, **_: Any) -> None:
        self.told.append((ending, job.seq))
