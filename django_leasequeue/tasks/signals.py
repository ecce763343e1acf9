"""Sending Django's task signals: a receiver that raises changes nothing, and nobody listening costs nothing.

Django itself connects one receiver to each signal, which writes a log line. It is not called through the signal, so
that no ``TaskResult`` has to be made for a line that is not written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.dispatch import Signal

from .api import TASKS_LOGGER, TaskResult, task_signals

_logger = logging.getLogger(TASKS_LOGGER)


@dataclass(frozen=True, slots=True)
class Announcement:
    """A signal, and the receiver of Django's own that is always connected to it."""

    signal: Signal
    log: Callable[..., None]
    level: int

    def heard(self) -> bool:
        """Whether anybody but Django's log line wants it: only then is a ``TaskResult`` needed."""
        receivers = self.signal.receivers
        return len(receivers) > 1 or (len(receivers) == 1 and receivers[0][0][0] != id(self.log))

    def logged(self, level: int | None = None) -> bool:
        """Whether Django's log line would be written."""
        return _logger.isEnabledFor(self.level if level is None else level) and bool(self.signal.receivers)

    def send(self, sender: type, result: TaskResult[Any]) -> None:
        """Send it to all receivers; what one raises is logged by Django and goes no further."""
        self.signal.send_robust(sender=sender, task_result=result)

    async def asend(self, sender: type, result: TaskResult[Any]) -> None:
        """Send it from async code."""
        await self.signal.asend_robust(sender=sender, task_result=result)


def _announcement(name: str, level: int) -> Announcement:
    return Announcement(getattr(task_signals, f"task_{name}"), getattr(task_signals, f"log_task_{name}"), level)


enqueued = _announcement("enqueued", logging.DEBUG)
started = _announcement("started", logging.INFO)
finished = _announcement("finished", logging.INFO)
