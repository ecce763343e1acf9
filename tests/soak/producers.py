"""The producers: ``python -m tests.soak.producers SEED URL``. They enqueue until SIGTERM, in every way there is."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import django
from django.db import connection

from django_leasequeue.client import Client
from django_leasequeue.tasks import emit

from .evidence import witness, work_until_told
from .flow_load import FlowProducer
from .load import Producer, stop
from .runs import DURABLE, SAGA
from .tasks import PAID, Part, durable, event, pays, repents

#: Seconds between two things that a producer of workflows and limits does, on average.
FLOW_PAUSE = 0.7
#: The same of the one whose workflows are cancelled while they run.
HALT_PAUSE = 3.0
#: The same of the one whose consumers ack late: they get through some 2.5 jobs in a second, and nothing is to gather.
TARDY_PAUSE = 0.6
#: The same of the one whose consumers share a buffer.
FOLD_PAUSE = 0.25
#: Seconds that a part takes: a step works, a sleep sleeps, an event comes so much later (or before) than its job.
TAKES = {"plain": (0.0, 0.02, 0.5, 1.5), "atomic": (0.0, 0.02, 0.2, 1.0), "sleep": (0.2, 1.0, 3.0)}
COMES = (-1.0, 0.0, 0.1, 1.0, 4.0)
UNDONE = 0.15
#: Seconds until a job that is to be cancelled has paid something; after its cancel, for a commit that went on.
PAYS_WITHIN, COMMITS_WITHIN = 15.0, 1.0


class DurableProducer(Producer):
    """Enqueues jobs of several parts, and emits their events until it knows that each is there."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: When each event is to be emitted, and when that was tried first.
        self._events: list[tuple[float, int, int]] = []
        self._tried: dict[tuple[int, int], int] = {}

    def durables(self) -> None:
        number, queue = next(self.numbers), self.queue()
        parts: list[Part] = []
        for place in range(self.dice.randint(2, 6)):
            (kind,) = self.dice.choices(["plain", "atomic", "sleep", "event"], [3, 4, 2, 2])
            parts.append((kind, self.dice.choice(TAKES.get(kind, (0.0,)))))
            if kind == "event":
                self._events.append((time.monotonic() + self.dice.choice(COMES), number, place))
        self.emits()
        bound = durable.using(queue_name=queue)
        self.commit([[number, queue, DURABLE]], lambda: bound.enqueue(number, parts))

    def payments(self) -> None:
        """A job that is cancelled in the middle of its steps, and what it has paid when that is answered."""
        number, queue, results = next(self.numbers), self.queue(), []
        tried = time.monotonic_ns()
        bound = pays.using(queue_name=queue)
        if self.commit([[number, queue, DURABLE]], lambda: results.append(bound.enqueue(number))) != "committed":
            return
        # On a busy machine it may be long until it runs; a cancel before that is no more than one of a waiting job.
        end = time.monotonic() + PAYS_WITHIN
        while not _paid(number) and time.monotonic() < end and not stop.wait(0.02):
            pass
        stop.wait(self.dice.uniform(0, 0.4))
        witness().say("recall", [number])
        if not results[0].cancel(running=True):
            witness().say("stays", [number])
            return
        count = _paid(number)
        witness().say("recalled", [number])
        stop.wait(COMMITS_WITHIN)
        witness().say("paid", number, tried, count, _paid(number))

    def sagas(self) -> None:
        """A job that fails when it has paid, or is cancelled before: in the end nothing is paid."""
        number, queue, results = next(self.numbers), self.queue(), []
        tried = time.monotonic_ns()
        bound = repents.using(queue_name=queue)
        if self.commit([[number, queue, SAGA]], lambda: results.append(bound.enqueue(number))) != "committed":
            return
        witness().say("saga", number, tried)
        if self.dice.random() < 0.5:
            stop.wait(self.dice.uniform(0, 2))
            results[0].cancel(running=True)

    def emits(self) -> None:
        """Emit what is due; what is rolled back, or in doubt, once more."""
        for due in [due for due in self._events if due[0] <= time.monotonic()]:
            _, number, place = due
            tried = self._tried.setdefault((number, place), time.monotonic_ns())
            if self.transact(partial(emit, event(number, place), f"{number}:{place}"), UNDONE) == "committed":
                self._events.remove(due)
                witness().say("emitted", number, place, tried)


def _paid(number: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute(PAID, [number])
        ((count,),) = cursor.fetchall()
    return int(count)


def main(seed: int, url: str) -> None:
    django.setup()
    jobs = {"plain": 6, "single": 3, "rollback": 3, "savepoint": 2, "bulk": 1}
    records = {"record": 3, "fast_record": 1}
    flow = {"ordered": 5, "pairs": 3, "paced": 3, "recalls": 1, "uniques": 3, "newest": 2}
    flow |= {"chains": 2, "chords": 3, "graphs": 2, "stops": 1}
    producers: list[Producer] = [
        Producer(1, seed, jobs), Producer(2, seed, jobs), Producer(3, seed, {"keyed": 1}),
        Producer(4, seed, {"ask": 1}), Producer(5, seed, {"post": 1}), Producer(6, seed, records),
        Producer(7, seed, records),
        FlowProducer(8, seed, flow, FLOW_PAUSE), FlowProducer(9, seed, flow, FLOW_PAUSE),
        FlowProducer(10, seed, {"halts": 1}, HALT_PAUSE), Producer(11, seed, {"wait": 1}),
        Producer(12, seed, {"tardy": 1}, TARDY_PAUSE),
        DurableProducer(13, seed, {"durables": 2, "payments": 3, "sagas": 2, "emits": 5}),
        Producer(14, seed, {"far": 1}), FlowProducer(15, seed, {"folds": 1}, FOLD_PAUSE),
    ]  # fmt: skip
    with Client(url) as client:
        for producer in producers:
            producer.client = client
        work_until_told(producers, stop)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
