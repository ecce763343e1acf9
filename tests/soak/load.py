"""Producers of jobs and of records: they enqueue in every way there is.

What they say, they know: *committed* when COMMIT was answered, *undone* when it was never sent. What was sent and not
answered is in doubt, and nothing is said of it.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import Error, connection, connections, transaction
from django.utils import timezone

from django_leasequeue import Queue, engine
from django_leasequeue.client import Client
from django_leasequeue.exceptions import LeaseQueueError, WaitTimeout

from . import tasks
from .evidence import DIRECTORY, FAR, witness

logger = logging.getLogger("tests.soak.load")

#: Numbers of one thread; jobs and items are told apart by theirs.
NUMBERS = 10**9
#: Seconds between two things that a producer does, on average.
PAUSE = 0.2
#: A file in the directory of the evidence: while it is there, workers are behind, and nothing is enqueued.
HOLD = "hold"

stop = threading.Event()


class Undo(Exception):
    """The producer thought better of it."""


#: A job to enqueue: its number, queue, task and arguments.
Draft = tuple[int, str, Any, tuple[Any, ...]]


class Producer(threading.Thread):
    """Does one thing after the other."""

    def __init__(self, place: int, seed: int, deeds: dict[str, int], pause: float = PAUSE) -> None:
        super().__init__(name=f"producer-{place}", daemon=True)
        self.dice = random.Random(f"{seed}/{place}")
        self.numbers = itertools.count(place * NUMBERS + 1)
        self._deeds, self._pause = deeds, pause
        self._keys: list[int] = []
        self.client: Client | None = None

    def run(self) -> None:
        hold = Path(os.environ[DIRECTORY]) / HOLD
        while not stop.wait(self.dice.expovariate(1 / self._pause)):
            if hold.exists():
                continue
            (deed,) = self.dice.choices(list(self._deeds), list(self._deeds.values()))
            try:
                getattr(self, deed)()
            except (Error, LeaseQueueError) as error:
                logger.warning("%s failed: %s", deed, " ".join(str(error).split())[:200])
                connections.close_all()
        connections.close_all()

    # What all of it is made of

    def chance(self, part: float) -> bool:
        return self.dice.random() < part

    def queue(self) -> str:
        return self.dice.choice(["sure", "swift"])

    def some(self, low: int, high: int) -> list[int]:
        return list(itertools.islice(self.numbers, self.dice.randint(low, high)))

    def seconds(self) -> float:
        return self.dice.choices([0.002, 0.05, 0.3, 1.5], [80, 12, 6, 2])[0]

    @contextmanager
    def told(self, queue: str, mode: str, low: int = 1, high: int = 1) -> Iterator[list[int]]:
        """Say that some jobs are tried, and that they were committed when the block has come to its end."""
        numbers = self.some(low, high)
        witness().say("try", [[number, queue, mode] for number in numbers])
        yield numbers
        witness().say("committed", numbers)

    def transact(self, body: Callable[[], object], undo: float = 0.0) -> str:
        """Run it in a transaction, which may be rolled back; return ``committed``, ``undone``, or ``doubt``."""
        whole, rolled_back = False, self.chance(undo)
        try:
            with transaction.atomic():
                body()
                # A savepoint that could not be rolled back, since its connection was gone: Django then rolls back the
                # whole transaction, and raises nothing.
                if rolled_back or transaction.get_rollback():
                    raise Undo
                whole = True
        except Undo:
            return "undone"
        except (Error, LeaseQueueError) as error:
            logger.warning("A transaction failed: %s", " ".join(str(error).split())[:200])
            connection.close()
            return "doubt" if whole else "undone"
        return "committed"

    def commit(self, named: list[list[Any]], body: Callable[[], object], undo: float = 0.0) -> str:
        witness().say("try", named)
        if (ended := self.transact(body, undo)) != "doubt":
            witness().say(ended, [number for number, *_ in named])
        return ended

    def _drafts(self, high: int) -> list[Draft]:
        return [self._draft(number) for number in self.some(1, high)]

    def _draft(self, number: int) -> Draft:
        queue, chance = self.queue(), self.dice.random()
        if chance < 0.03:
            return number, queue, tasks.fails, (number,)
        if chance < 0.042:
            return number, queue, tasks.work, (number, self.dice.uniform(4.5, 6.5), True)
        if chance < 0.25:
            return number, queue, tasks.awork, (number, 5 * self.seconds())
        return number, queue, tasks.work, (number, self.seconds())

    def _enqueue(self, drafts: list[Draft]) -> None:
        for _, queue, task, args in drafts:
            later = timezone.now() + timedelta(seconds=self.dice.uniform(0.2, 3.0)) if self.chance(0.1) else None
            task.using(queue_name=queue, run_after=later).enqueue(*args)

    # Jobs

    def plain(self, undo: float = 0.0) -> None:
        drafts = self._drafts(6)
        self.commit(_named(drafts), lambda: self._enqueue(drafts), undo)

    def rollback(self) -> None:
        self.plain(undo=1.0)

    def single(self) -> None:
        draft = self._draft(next(self.numbers))
        witness().say("try", _named([draft]))
        self._enqueue([draft])
        witness().say("committed", [draft[0]])

    def far(self) -> None:
        """One job on the second server, which has no part in transactions of the first."""
        with self.told(FAR, "plain") as (number,):
            tasks.work.using(queue_name=FAR).enqueue(number, self.seconds())

    def savepoint(self) -> None:
        kept, gone = self._drafts(4), self._drafts(4)

        def body() -> None:
            self._enqueue(kept[:1])
            with suppress(Undo), transaction.atomic():
                self._enqueue(gone)
                raise Undo
            self._enqueue(kept[1:])

        witness().say("try", _named(gone))
        self.commit(_named(kept), body)
        # Whatever became of the transaction: if it was committed, then without them.
        witness().say("undone", [number for number, *_ in gone])

    def bulk(self) -> None:
        numbers, queue = self.some(10, 40), self.queue()
        bound = tasks.work.using(queue_name=queue)
        named = [[number, queue, "plain"] for number in numbers]
        self.commit(named, lambda: bound.enqueue_many([(number, 0.002) for number in numbers]))

    def keyed(self) -> None:
        """A job with a key, sent again and again until the answer says that it is there; later once more."""
        number = self.dice.choice(self._keys) if len(self._keys) > 9 and self.chance(0.5) else None
        if number is None:
            number = next(self.numbers)
            self._keys = [*self._keys[-9:], number]
        queue, payload = Queue("keyed"), {"args": [number, 0.01]}
        while not stop.is_set():
            witness().say("try", [[number, "keyed", "keyed"]])
            with suppress(Error, LeaseQueueError):
                queue.enqueue(payload, key=f"k{number}", name=tasks.work.module_path)
                witness().say("committed", [number])
                return
            connection.close()
            stop.wait(0.2)

    def ask(self) -> None:
        queue = self.queue()
        with self.told(queue, "asked") as (number,), suppress(WaitTimeout):  # it goes on
            payload = {"args": [number, 0.01]}
            answer = Queue(queue).enqueue_and_wait(payload, name=tasks.work.module_path, timeout=20.0)
            witness().say("answer", number, answer == number)

    def wait(self) -> None:
        queue = self.queue()
        with self.told(queue, "asked") as (number,):
            result = tasks.work.using(queue_name=queue).enqueue(number, 0.01)
        with suppress(WaitTimeout):  # it goes on
            witness().say("answer", number, result.wait(20.0) == number)

    def tardy(self) -> None:
        with self.told("late", "late") as (number,):
            Queue("late").enqueue({"job": number})

    def post(self) -> None:
        assert self.client is not None
        with self.told("web", "http", 1, 12) as numbers:
            work = [{"job": number, "seconds": self.seconds(), "stubborn": False} for number in numbers]
            if self.chance(0.1):
                work[0] |= {"seconds": self.dice.uniform(4.5, 6.5), "stubborn": True}
            self.client.produce("web", [{"data": data} for data in work], create=False)

    # Records

    def record(self) -> None:
        """Some records in a transaction that takes its time: numbers become visible out of order."""
        items = self.some(1, 5)
        witness().say("put", "log", items)

        def body() -> None:
            engine.run(engine.enqueue("log", [engine.NewJob(data=item) for item in items], create=False))
            stop.wait(self.dice.choice([0, 0, 0.05, 0.5]))

        if (ended := self.transact(body, undo=0.2)) != "doubt":
            witness().say("kept" if ended == "committed" else "dropped", "log", items)

    def fast_record(self) -> None:
        items = self.some(1, 5)
        witness().say("put", "fastlog", items)
        engine.run(engine.enqueue("fastlog", [engine.NewJob(data=item) for item in items], create=False))
        witness().say("kept", "fastlog", items)


def _named(drafts: list[Draft]) -> list[list[Any]]:
    return [[number, queue, "plain"] for number, queue, *_ in drafts]
