"""The producer of durable jobs, and of the events that they wait for."""

from __future__ import annotations

import time
from typing import Any

from django.db import Error, connection, transaction

from django_leasequeue.exceptions import LeaseQueueError
from django_leasequeue.tasks import emit

from .durable_tasks import Part, durable, event
from .evidence import witness
from .load import Producer, Undo
from .runs import DURABLE

#: Seconds that a part takes: a step works, a sleep sleeps, an event comes so much later (or before) than its job.
TAKES = {"plain": (0.0, 0.02, 0.5, 1.5), "atomic": (0.0, 0.02, 0.2, 1.0), "sleep": (0.2, 1.0, 3.0)}
COMES = (-1.0, 0.0, 0.1, 1.0, 4.0)
UNDONE = 0.15


class DurableProducer(Producer):
    """Enqueues jobs of several parts, and emits their events until it knows that each is there."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: When each event is to be emitted, and when that was tried first.
        self._events: list[tuple[float, int, int]] = []
        self._tried: dict[tuple[int, int], int] = {}

    def durables(self) -> None:
        """A job, in a transaction."""
        number, queue = next(self._numbers), self._dice.choice(["sure", "swift"])
        parts: list[Part] = []
        for place in range(self._dice.randint(2, 6)):
            (kind,) = self._dice.choices(["plain", "atomic", "sleep", "event"], [3, 4, 2, 2])
            parts.append((kind, self._dice.choice(TAKES.get(kind, (0.0,)))))
            if kind == "event":
                self._events.append((time.monotonic() + self._dice.choice(COMES), number, place))
        self.emits()
        witness().say("try", [[number, queue, DURABLE]])
        ended = self._transact(lambda: durable.using(queue_name=queue).enqueue(number, parts))
        if ended != "doubt":
            witness().say(ended, [number])

    def emits(self) -> None:
        """Emit what is due; what is rolled back, or in doubt, once more."""
        for due in [due for due in self._events if due[0] <= time.monotonic()]:
            _, number, place = due
            tried = self._tried.setdefault((number, place), time.monotonic_ns())
            try:
                with transaction.atomic():
                    emit(event(number, place), f"{number}:{place}")
                    if self._dice.random() < UNDONE:
                        raise Undo
            except Undo:
                continue
            except (Error, LeaseQueueError):
                connection.close()
                return
            self._events.remove(due)
            witness().say("emitted", number, place, tried)
