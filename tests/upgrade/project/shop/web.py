"""A web process: it enqueues at a rate, reads what its users look at, and writes down what it was answered.

``python -m shop.web LEDGER FIRST RATE PAUSE`` until SIGTERM. A line of the ledger is ``[kind, number, id]`` after the
enqueue, or ``["error", what, traceback]``: a caller has seen an error.
"""

import json
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import django

#: Seconds between batches, and between looks.
TICK, LOOK = 0.05, 0.5
#: One in so many ticks has a job of this kind, if the rate allows one more: rare ones first.
KINDS = {"chord": 10, "doomed": 10, "refused": 10, "slow": 20, "durable": 5, "flaky": 5, "single": 1}


class Web:
    def __init__(self, ledger: TextIO, first: int, rate: float, pause: float) -> None:
        self._ledger, self._number, self._rate, self._pause = ledger, first, rate, pause
        self._recent: deque[Any] = deque(maxlen=100)
        self._waiting: deque[tuple[float, int]] = deque()

    def run(self, over: threading.Event) -> None:
        begin, ticks, made, looked = time.monotonic(), 0, 0, 0.0
        while not over.wait(max(0.0, begin + ticks * TICK - time.monotonic())):
            ticks += 1
            due = int((time.monotonic() - begin) * self._rate) - made
            for kind, every in KINDS.items():
                if ticks % every == 0 and due > 0:
                    made, due = made + 1, due - 1
                    self._try(kind, lambda kind=kind: self._enqueue(kind))
            if due > 0:
                made += due
                self._try("many", lambda due=due: self._enqueue_many(due))
            self._try("emit", self._emit)
            if time.monotonic() >= looked + LOOK:
                looked = time.monotonic()
                self._try("look", self._look)
        for _ in range(len(self._waiting)):
            self._try("emit", lambda: self._emit(now=True))

    def _try(self, what: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # noqa: BLE001  (whatever a caller meets)
            self._write("error", what, traceback.format_exc())

    def _write(self, *entry: object) -> None:
        self._ledger.write(json.dumps(entry) + "\n")
        self._ledger.flush()

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _enqueue(self, kind: str) -> None:
        from django_leasequeue.tasks import chord
        from shop import tasks

        number = self._next()
        if kind == "chord":
            result = chord([tasks.double.s(number), tasks.slow.s(number)], tasks.total.s()).enqueue()
        elif kind == "durable":
            result = tasks.durable.enqueue(number, self._pause)
            self._waiting.append((time.monotonic() + 2 * self._pause, number))
        else:
            result = getattr(tasks, "double" if kind == "single" else kind).enqueue(number)
            self._recent.append(result)
        self._write(kind, number, result.id)

    def _enqueue_many(self, count: int) -> None:
        from shop import tasks

        numbers = [self._next() for _ in range(count)]
        results = tasks.double.enqueue_many([(number,) for number in numbers])
        for number, result in zip(numbers, results, strict=True):
            self._write("many", number, result.id)

    def _emit(self, now: bool = False) -> None:
        from django_leasequeue.tasks import emit

        if self._waiting and (now or self._waiting[0][0] <= time.monotonic()):
            number = self._waiting[0][1]
            emit(f"event {number}", 1)
            self._waiting.popleft()

    def _look(self) -> None:
        from django_leasequeue.models import Job, Queue

        list(Job.objects.filter(state="dead").order_by("-seq").values("task", "error", "deliveries")[:10])
        list(Queue.objects.values("name", "paused_at"))
        if self._recent:
            self._recent[0].refresh()


def main(ledger: str, first: str, rate: str, pause: str) -> None:
    django.setup()
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    with Path(ledger).open("a", encoding="utf-8") as file:
        Web(file, int(first), float(rate), float(pause)).run(over)


if __name__ == "__main__":
    main(*sys.argv[1:])
