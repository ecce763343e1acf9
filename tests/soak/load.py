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
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

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


class Draft(NamedTuple):
    """A job to enqueue."""

    number: int
    queue: str
    task: Any
    args: tuple[Any, ...]

    def bound(self, delay: float = 0.0) -> Any:
        """Return the task for the job's queue."""
        later = timezone.now() + timedelta(seconds=delay) if delay else None
        return self.task.using(queue_name=self.queue, run_after=later)


class Producer(threading.Thread):
    """Does one thing after the other."""

    def __init__(self, place: int, seed: int, deeds: dict[str, int], pause: float = PAUSE) -> None:
        super().__init__(name=f"producer-{place}", daemon=True)
        self._dice = random.Random(f"{seed}/{place}")
        self._numbers = itertools.count(place * NUMBERS + 1)
        self._deeds = deeds
        self._pause = pause
        self._keys: list[int] = []
        self.client: Client | None = None

    def run(self) -> None:
        hold = Path(os.environ[DIRECTORY]) / HOLD
        while not stop.wait(self._dice.expovariate(1 / self._pause)):
            if hold.exists():
                continue
            (deed,) = self._dice.choices(list(self._deeds), list(self._deeds.values()))
            try:
                getattr(self, deed)()
            except (Error, LeaseQueueError) as error:
                logger.warning("%s failed: %s", deed, " ".join(str(error).split())[:200])
                connections.close_all()
        connections.close_all()

    # Jobs

    def plain(self) -> None:
        """Some jobs in a transaction."""
        drafts = self._drafts(self._dice.randint(1, 6))
        self._say(drafts, self._transact(lambda: self._enqueue(drafts)))

    def single(self) -> None:
        """One job without a transaction of ours."""
        (draft,) = drafts = self._drafts(1)
        witness().say("try", _named(drafts))
        draft.bound().enqueue(*draft.args)
        self._say(drafts, "committed")

    def far(self) -> None:
        """One job on the second server, which has no part in transactions of the first."""
        number = next(self._numbers)
        witness().say("try", [[number, FAR, "plain"]])
        tasks.work.using(queue_name=FAR).enqueue(number, self._seconds())
        witness().say("committed", [number])

    def rollback(self) -> None:
        """Some jobs in a transaction that is rolled back."""
        drafts = self._drafts(self._dice.randint(1, 6))

        def body() -> None:
            self._enqueue(drafts)
            raise Undo

        self._say(drafts, self._transact(body))

    def savepoint(self) -> None:
        """Some jobs that stay, and some in a savepoint that is rolled back."""
        kept, gone = self._drafts(self._dice.randint(1, 4)), self._drafts(self._dice.randint(1, 4))

        def body() -> None:
            self._enqueue(kept[:1])
            try:
                with transaction.atomic():
                    self._enqueue(gone)
                    raise Undo
            except Undo:
                pass
            self._enqueue(kept[1:])

        ended = self._transact(body)
        self._say(kept, ended)
        # Whatever became of the transaction: if it was committed, then without them.
        self._say(gone, "undone")

    def bulk(self) -> None:
        """Many jobs of one kind at once."""
        numbers = list(itertools.islice(self._numbers, self._dice.randint(10, 40)))
        queue = self._dice.choice(["sure", "swift"])
        drafts = [Draft(number, queue, tasks.work, (number, 0.002)) for number in numbers]

        def body() -> None:
            witness().say("try", _named(drafts))
            drafts[0].bound().enqueue_many([draft.args for draft in drafts])

        self._say(drafts, self._transact(body))

    def keyed(self) -> None:
        """A job with a key, sent again and again until the answer says that it is there; later once more."""
        number = self._dice.choice(self._keys) if len(self._keys) > 9 and self._dice.random() < 0.5 else None
        if number is None:
            number = next(self._numbers)
            self._keys = [*self._keys[-9:], number]
        queue, payload = Queue("keyed"), {"args": [number, 0.01]}
        while not stop.is_set():
            witness().say("try", [[number, "keyed", "keyed"]])
            try:
                queue.enqueue(payload, key=f"k{number}", name=tasks.work.module_path)
                break
            except (Error, LeaseQueueError):
                connection.close()
                stop.wait(0.2)
        else:
            return
        witness().say("committed", [number])

    def ask(self) -> None:
        """A job whose answer is waited for."""
        number = next(self._numbers)
        queue = self._dice.choice(["sure", "swift"])
        witness().say("try", [[number, queue, "asked"]])
        try:
            answer = Queue(queue).enqueue_and_wait({"args": [number, 0.01]}, name=tasks.work.module_path, timeout=20.0)
        except WaitTimeout:
            witness().say("committed", [number])  # it goes on
            return
        witness().say("committed", [number])
        witness().say("answer", number, answer == number)

    def wait(self) -> None:
        """A task whose result is waited for."""
        (number,) = numbers = [next(self._numbers)]
        queue = self._dice.choice(["sure", "swift"])
        witness().say("try", [[number, queue, "asked"]])
        result = tasks.work.using(queue_name=queue).enqueue(number, 0.01)
        witness().say("committed", numbers)
        with suppress(WaitTimeout):  # it goes on
            witness().say("answer", number, result.wait(20.0) == number)

    def tardy(self) -> None:
        """A job for consumers that settle late."""
        number = next(self._numbers)
        witness().say("try", [[number, "late", "late"]])
        Queue("late").enqueue({"job": number})
        witness().say("committed", [number])

    def post(self) -> None:
        """Some jobs over HTTP."""
        assert self.client is not None
        numbers = list(itertools.islice(self._numbers, self._dice.randint(1, 12)))
        records = [{"data": {"job": number, "seconds": self._seconds(), "stubborn": False}} for number in numbers]
        if self._dice.random() < 0.1:
            records[0]["data"] = {"job": numbers[0], "seconds": self._dice.uniform(4.5, 6.5), "stubborn": True}
        witness().say("try", [[number, "web", "http"] for number in numbers])
        self.client.produce("web", records, create=False)
        witness().say("committed", numbers)

    # Records

    def record(self) -> None:
        """Some records in a transaction that takes its time: numbers become visible out of order."""
        items = list(itertools.islice(self._numbers, self._dice.randint(1, 5)))

        def body() -> None:
            witness().say("put", "log", items)
            engine.run(engine.enqueue("log", [engine.NewJob(data=item) for item in items], create=False))
            stop.wait(self._dice.choice([0, 0, 0.05, 0.5]))
            if self._dice.random() < 0.2:
                raise Undo

        ended = self._transact(body)
        if ended != "doubt":
            witness().say("kept" if ended == "committed" else "dropped", "log", items)

    def fast_record(self) -> None:
        """Some records that do not wait for the disk."""
        items = list(itertools.islice(self._numbers, self._dice.randint(1, 5)))
        witness().say("put", "fastlog", items)
        engine.run(engine.enqueue("fastlog", [engine.NewJob(data=item) for item in items], create=False))
        witness().say("kept", "fastlog", items)

    # What these are made of

    def _drafts(self, count: int) -> list[Draft]:
        return list(itertools.islice(self._endless_drafts(), count))

    def _endless_drafts(self) -> Iterator[Draft]:
        while True:
            number, queue = next(self._numbers), self._dice.choice(["sure", "swift"])
            chance = self._dice.random()
            if chance < 0.03:
                yield Draft(number, queue, tasks.fails, (number,))
            elif chance < 0.042:
                yield Draft(number, queue, tasks.work, (number, self._dice.uniform(4.5, 6.5), True))
            elif chance < 0.25:
                yield Draft(number, queue, tasks.awork, (number, 5 * self._seconds()))
            else:
                yield Draft(number, queue, tasks.work, (number, self._seconds()))

    def _seconds(self) -> float:
        return self._dice.choices([0.002, 0.05, 0.3, 1.5], [80, 12, 6, 2])[0]

    def _enqueue(self, drafts: list[Draft]) -> None:
        if drafts:
            witness().say("try", _named(drafts))
        for draft in drafts:
            delay = self._dice.uniform(0.2, 3.0) if self._dice.random() < 0.1 else 0.0
            draft.bound(delay).enqueue(*draft.args)

    def _transact(self, body: Callable[[], object]) -> str:
        """Run it in a transaction; return ``committed``, ``undone``, or ``doubt``."""
        whole = False
        try:
            with transaction.atomic():
                body()
                # A savepoint that could not be rolled back, since its connection was gone: Django then rolls back the
                # whole transaction, and raises nothing.
                if transaction.get_rollback():
                    raise Undo
                whole = True
        except Undo:
            return "undone"
        except (Error, LeaseQueueError) as error:
            logger.warning("A transaction failed: %s", " ".join(str(error).split())[:200])
            connection.close()
            return "doubt" if whole else "undone"
        return "committed"

    def _say(self, drafts: list[Draft], ended: str) -> None:
        if ended != "doubt":
            witness().say(ended, [draft.number for draft in drafts])


def _named(drafts: list[Draft]) -> list[list[Any]]:
    return [[draft.number, draft.queue, "plain"] for draft in drafts]
