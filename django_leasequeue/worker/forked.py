"""Processes that a job forks: they have default signals and none of the worker's sockets, and run no other job."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from ..conf import process

#: The workers that run in this process.
_workers: set[object] = set()
#: The handlers of signals that a worker has set, and the descriptors that only it may use.
_handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
_descriptors: set[int] = set()
#: The signals that a thread which forks has blocked.
_mask = threading.local()
#: Whether this process was forked while a worker ran, most likely by a job.
is_child = False


def begins(worker: object) -> None:
    """Note that a worker runs: from now on, a fork makes a child of its jobs."""
    global is_child
    is_child = False  # a child may run a worker of its own
    _workers.add(worker)


def ends(worker: object) -> None:
    """Note that a worker has ended."""
    _workers.discard(worker)


def handle(number: int, function: Callable[[int, FrameType | None], Any]) -> None:
    """Handle a signal in this process, and not in its children."""
    _handlers[number] = function
    signal.signal(number, function)


def keep_to_parent(descriptor: int) -> None:
    """Close a descriptor in children as soon as they are forked."""
    _descriptors.add(descriptor)


def forget(descriptor: int) -> None:
    """Take back ``keep_to_parent``: the number may be another file's soon."""
    _descriptors.discard(descriptor)


def leave_if_child() -> None:
    """End a child when its job returns or raises: the worker's other jobs belong to the parent."""
    if not is_child:
        return
    error = sys.exc_info()[1]
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    with suppress(OSError, ValueError):  # it may have closed them
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF)


def _block_signals() -> None:
    """Keep signals for the child until it has its own handlers: ours would swallow them."""
    if _workers:
        _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, _handlers)


def _unblock_signals() -> None:
    before = vars(_mask).pop("before", None)
    if before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _part() -> None:
    """In a child: give up the worker's signals and descriptors. No other thread lives here to hold a lock."""
    global is_child
    if not _workers:
        return
    is_child = True
    _workers.clear()
    for number, ours in _handlers.items():
        if signal.getsignal(number) is ours:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    for descriptor in _descriptors:
        process.let_go(descriptor)
    _descriptors.clear()
    _unblock_signals()


process.around_fork(_block_signals, _unblock_signals)
process.in_forked_child(_part)
