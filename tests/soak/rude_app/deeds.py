"""What a host adds to its processes: receivers of signals, duties of the reaper, and a backend of its own."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from django.db import transaction

from django_leasequeue import signals
from django_leasequeue.engine import ConnectionExecutor
from django_leasequeue.reaper import DutyRun, register
from django_leasequeue.tasks.api import BaseTaskBackend, task_signals

from . import HOW, STOP

#: Seconds for which a receiver blocks, a backend hangs, and a duty hangs at most.
BLOCKED, HANGING, LONGEST = 6.0, 40.0, 120.0


def join(folder: Path) -> None:
    """Be rude in this process from now on, as the files of a folder say."""
    register("rude", lambda turn: fail(folder / HOW, turn), 1.0)
    register("ledger", lambda turn: note_term(folder / STOP, turn), 0.5)
    for task_signal in (task_signals.task_enqueued, task_signals.task_started, task_signals.task_finished):
        task_signal.connect(block_task, weak=False)
    signals.enqueued.connect(block_tick, weak=False)


def block_task(*, task_result: Any, **_: Any) -> None:
    if task_result.task.name == "blocked":
        time.sleep(BLOCKED)


def block_tick(*, name: str, **_: Any) -> None:
    """No tick may meet this."""
    if name.endswith(".tick"):
        time.sleep(LONGEST)


def fail(file: Path, turn: DutyRun) -> None:
    """Do what the file says, as long as it says so."""
    try:
        how = file.read_text()
    except FileNotFoundError:
        return
    match how:
        case "raises":
            raise ValueError("a duty of the host's")
        case "exits":
            sys.exit(7)
        case "leaves":
            transaction.atomic(using=turn.alias).__enter__()
        case "hangs":
            end = time.monotonic() + LONGEST
            while file.exists() and time.monotonic() < end:
                time.sleep(0.05)


def note_term(file: Path, turn: DutyRun) -> None:
    """Write down who leads, if nobody else does by now; when asked to, stop the process in the midst of it."""
    turn.fetch("reaper_look")
    if file.exists():
        file.unlink()
        os.kill(os.getpid(), signal.SIGSTOP)
    assert turn.term is not None
    with turn.transaction():
        turn.fence(ConnectionExecutor(turn.connection))
        turn.connection.execute("INSERT INTO rude_ledger (term) VALUES (%s)", [turn.term.number])


class HangingBackend(BaseTaskBackend):
    """A backend of another kind, whose service does not answer."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        time.sleep(HANGING)
        raise ConnectionError("the service does not answer")
