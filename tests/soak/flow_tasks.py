"""The tasks of the soak that limits and workflows hold."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from django_leasequeue.tasks import Limit, current, task

from .evidence import DIRECTORY, witness
from .tasks import pause

#: A file of a job's number in here: it does not fail any more.
HEALED = "healed"

ONE = Limit("one:{key}", concurrency=1)
TWO = Limit("two:{key}", concurrency=2)
#: Starts, and the seconds in which so many are allowed; too few for the small part of them that may come at once.
RATE, PER = 8, 3
PACE = Limit("pace", rate=RATE, per=PER)


class Doomed(Exception):
    """The task fails whatever is done, until it is healed."""


def healed(number: int) -> Path:
    """Return the file whose presence heals a job."""
    return Path(os.environ[DIRECTORY]) / HEALED / str(number)


@task
def step(number: int, key: str = "", seconds: float = 0.002, stubborn: bool = False) -> int:
    """Take some time."""
    pause(number, seconds, stubborn)
    return number


@task
def lingers(number: int) -> int:
    """Take long enough for others to wait."""
    pause(number, 0.3, stubborn=True)
    return number


@task
def stumbles(number: int, key: str = "") -> int:
    """Raise at the first delivery."""
    control = current()
    assert control is not None
    if control.job.deliveries == 1:
        raise ValueError(f"job {number} fails once")
    return number


@task
def doomed(number: int, key: str = "") -> int:
    """Raise until it is healed."""
    if not healed(number).exists():
        raise Doomed(f"job {number} is not healed")
    return number


@task
def fails_for_ever(number: int) -> int:
    """Raise."""
    raise Doomed(f"job {number} is not to be healed")


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
    control = current()
    assert control is not None
    if control.job.deliveries == 1:
        threading.Thread(target=_strike, args=(number, control.job.token, delay), daemon=True).start()
    return number


def _strike(number: int, claim: int, delay: float) -> None:
    time.sleep(delay)
    witness().say("last", number, claim, "task: strike")
    os.kill(os.getpid(), signal.SIGKILL)


@task(key="unique-{name}")
def unique(number: int, name: str, seconds: float = 0.002) -> int:
    """Take some time; there is one of each name at a time."""
    pause(number, seconds, stubborn=False)
    return number
