"""Django's task signals, sent robustly: a receiver that raises is logged and changes nothing.

Django itself connects one receiver to each signal, which writes a log line. Where it is the only one, it is called
directly, so that no ``TaskResult`` is made for a line that is not written.
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
class TaskSignal:
    """One of Django's task signals, with the receiver of Django's own that writes its log line.

    Args:
        signal: the signal.
        log: Django's receiver.
        level: logging level of its line.
    """

    signal: Signal
    log: Callable[..., None]
    level: int

    def is_heard(self, level: int | None = None) -> bool:
        """Return whether there is any receiver; Django's own counts if its line is written (see ``is_logged``)."""
        receivers = self.signal.receivers
        return bool(receivers) and (
            _logger.isEnabledFor(self.level if level is None else level) or self.has_receivers()
        )

    def has_receivers(self) -> bool:
        """Return whether there is a receiver beside Django's own: only then is a ``TaskResult`` needed."""
        receivers = self.signal.receivers
        return len(receivers) > 1 or (len(receivers) == 1 and receivers[0][0][0] != id(self.log))

    def is_logged(self, level: int | None = None) -> bool:
        """Return whether Django's log line is written at this level; ``None``: at the signal's own."""
        return _logger.isEnabledFor(self.level if level is None else level) and bool(self.signal.receivers)

    def send(self, sender: type, result: TaskResult[Any]) -> None:
        """Send the signal to all receivers; what one raises is logged by Django and goes no further."""
        self.signal.send_robust(sender=sender, task_result=result)

    async def asend(self, sender: type, result: TaskResult[Any]) -> None:
        """Send the signal from async code; see ``send``."""
        await self.signal.asend_robust(sender=sender, task_result=result)


def _task_signal(name: str, level: int) -> TaskSignal:
    return TaskSignal(getattr(task_signals, f"task_{name}"), getattr(task_signals, f"log_task_{name}"), level)


enqueued = _task_signal("enqueued", logging.DEBUG)
started = _task_signal("started", logging.INFO)
finished = _task_signal("finished", logging.INFO)
