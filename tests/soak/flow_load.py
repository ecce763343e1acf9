"""The producer of what limits and workflows hold, and of unique tasks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from django.db import Error, connection

from django_leasequeue.exceptions import LeaseQueueError
from django_leasequeue.tasks import Workflow, chain, chord, group

from . import flow_tasks as tasks
from .evidence import HALTED, SECOND, witness
from .load import Producer, Undo, stop

#: Keys of which there is one job at a time, of each producer; and those of two, which producers share.
OWN, SHARED = 3, ("a", "b", "c")
#: How often something of a transaction, or a workflow, fails until it is healed, or is rolled back.
DOOMED, ROLLED_BACK = 0.2, 0.15


class Sketch:
    """A workflow on its way: its calls, and what the oracle has to know of them."""

    def __init__(self, producer: FlowProducer) -> None:
        self._producer = producer
        self.named: list[list[Any]] = []
        self.edges: list[list[Any]] = []
        self.limited: list[list[Any]] = []

    def add(
        self,
        task: Any,
        *args: Any,
        after: Sequence[int] = (),
        mode: str = "node",
        tolerant: bool = False,
        queue: str = "",
    ) -> Any:
        """Return the signature of a call; ``joins`` takes what those before it return, other tasks nothing."""
        number = self._producer.number()
        queue = queue or self._producer.queue()
        self.named.append([number, queue, mode])
        if after:
            self.edges.append([number, list(after), tolerant])
        key = ""
        if task in (tasks.step, tasks.joins) and self._producer.chance(0.15):
            key = self._producer.shared()
            task = task.using(limit=tasks.TWO)
            self.limited.append([number, f"two:{key}", 2, False])
        task = task.using(queue_name=queue)
        if tasks.joins.name == task.name:
            return task.s(number, *args, key=key)
        return task.si(number, *args, **({"key": key} if key else {}))

    @property
    def last(self) -> int:
        """The number of the call that was added last."""
        number: int = self.named[-1][0]
        return number


class FlowProducer(Producer):
    """Enqueues jobs under limits, workflows and unique tasks."""

    def __init__(self, place: int, seed: int, deeds: dict[str, int], pause: float) -> None:
        super().__init__(place, seed, deeds, pause)
        self._place = place
        self._newest: int | None = None

    # What these are made of

    def number(self) -> int:
        """Return the next number."""
        return next(self._numbers)

    def queue(self) -> str:
        """Return a queue."""
        return self._dice.choice(["sure", "swift"])

    def shared(self) -> str:
        """Return a key that producers share."""
        return self._dice.choice(SHARED)

    def chance(self, part: float) -> bool:
        """Whether it comes to it, in so many of all cases."""
        return self._dice.random() < part

    def _numbers_of(self, low: int, high: int) -> list[int]:
        return list(itertools.islice(self._numbers, self._dice.randint(low, high)))

    def _commit(self, named: list[list[Any]], body: Callable[[], Any], *, undo: float = ROLLED_BACK) -> str:
        """Enqueue in a transaction, and say what became of it."""
        numbers = [number for number, *_ in named]
        witness().say("try", named)
        rolled_back = self.chance(undo)

        def all_of_it() -> None:
            body()
            if rolled_back:
                raise Undo

        ended = self._transact(all_of_it)
        if ended != "doubt":
            witness().say(ended, numbers)
        return ended

    # Limits

    def ordered(self) -> None:
        """Some jobs of a key that has one at a time."""
        at = self._dice.randrange(OWN)
        key, queue = f"{self._place}-{at}", ("sure", "swift")[at % 2]
        numbers = self._numbers_of(1, 4)
        stumbling = [number for number in numbers if self.chance(0.04)]
        seconds = {number: self._seconds() if self.chance(0.5) else 0.002 for number in numbers}
        long = numbers[0] if self.chance(0.02) else None

        def body() -> None:
            for number in numbers:
                if number in stumbling:
                    tasks.stumbles.using(queue_name=queue, limit=tasks.ONE).enqueue(number, key)
                elif number == long:
                    tasks.step.using(queue_name=queue, limit=tasks.ONE).enqueue(number, key, 5.0, stubborn=True)
                else:
                    tasks.step.using(queue_name=queue, limit=tasks.ONE).enqueue(number, key, seconds[number])

        witness().say("under", [[number, f"one:{key}", 1, True] for number in numbers])
        self._commit([[number, queue, "limited"] for number in numbers], body)

    def pairs(self) -> None:
        """Some jobs of a key that has two at a time, in a queue of their own each."""
        key = self.shared()
        drafts = [(number, self.queue(), self._seconds(), self.chance(0.05)) for number in self._numbers_of(2, 6)]

        def body() -> None:
            for number, queue, seconds, fails in drafts:
                if fails:
                    tasks.doomed.using(queue_name=queue, limit=tasks.TWO, max_attempts=1).enqueue(number, key)
                else:
                    tasks.step.using(queue_name=queue, limit=tasks.TWO).enqueue(number, key, seconds)

        witness().say("under", [[number, f"two:{key}", 2, False] for number, *_ in drafts])
        named = [[number, queue, "doomed" if fails else "limited"] for number, queue, _, fails in drafts]
        self._commit(named, body)

    def paced(self) -> None:
        """Some jobs under a rate, at once."""
        numbers = self._numbers_of(1, 8)
        bound = tasks.step.using(queue_name="sure", limit=tasks.PACE)
        witness().say("paced", numbers, tasks.RATE, tasks.PER * SECOND)
        self._commit([[n, "sure", "limited"] for n in numbers], lambda: bound.enqueue_many([(n,) for n in numbers]))

    def recalls(self) -> None:
        """Some jobs of a key that has two at a time; some of them are cancelled again."""
        key = self.shared()
        queue, numbers = self.queue(), self._numbers_of(3, 6)
        bound = tasks.step.using(queue_name=queue, limit=tasks.TWO)
        results: list[Any] = []
        witness().say("under", [[number, f"two:{key}", 2, False] for number in numbers])
        ended = self._commit(
            [[number, queue, "limited"] for number in numbers],
            lambda: results.extend(bound.enqueue(number, key, 0.05) for number in numbers),
            undo=0,
        )
        if ended != "committed":
            return
        stop.wait(self._dice.choice([0, 0.02, 0.2]))
        for number, result in list(zip(numbers, results, strict=True))[1:]:
            witness().say("recall", [number])
            witness().say("recalled" if result.cancel() else "stays", [number])

    # Workflows

    def chains(self) -> None:
        """One job after the other."""
        sketch = Sketch(self)
        steps = [sketch.add(tasks.step)]
        fate = self._fate()
        place = self._dice.randint(1, 3)
        dying = 0
        for at in range(1, self._dice.randint(3, 5)):
            before = sketch.last
            lost = fate == "forever" and at > place
            if fate and at == place:
                steps.append(sketch.add(self._dying(fate), after=(before,), mode=fate))
                dying = sketch.last
            elif fate is None and self.chance(0.5):
                steps.append(sketch.add(tasks.joins, before, after=(before,)))
            else:
                steps.append(sketch.add(tasks.step, after=(before,), mode="never" if lost else "node"))
        mode = "failure" if fate == "doomed" else "node"
        failed = sketch.add(tasks.step, after=(dying,), mode=mode, tolerant=True) if dying else None
        self._start(sketch, lambda: chain(*steps, on_failure=failed).enqueue())

    def chords(self) -> None:
        """Many side by side, and one after all of them."""
        sketch = Sketch(self)
        fate = self._fate()
        count = self._dice.randint(2, 12)
        members, numbers = [], []
        for at in range(count):
            if fate and at == count // 2:
                members.append(sketch.add(self._dying(fate), mode=fate))
            else:
                members.append(sketch.add(tasks.step))
            numbers.append(sketch.last)
        tolerant = fate == "forever" or self.chance(0.2)
        callback = sketch.add(tasks.joins, numbers, tolerant, after=tuple(numbers), tolerant=tolerant)
        self._start(sketch, lambda: chord(group(members), callback, allow_failures=tolerant).enqueue())

    def graphs(self) -> None:
        """A graph: some jobs, more that come after some of them each, and one at the end."""
        sketch = Sketch(self)
        workflow = Workflow(name="graph")
        steps: dict[int, Any] = {}
        fate = "doomed" if self.chance(DOOMED) else None
        for at in range(self._dice.randint(4, 10)):
            before = (
                tuple(self._dice.sample(sorted(steps), min(len(steps), self._dice.randint(1, 3)))) if at > 1 else ()
            )
            after = [steps[number] for number in before]
            if fate and at == 2:
                signature = sketch.add(self._dying(fate), after=before, mode=fate)
            elif before:
                signature = sketch.add(tasks.joins, list(before), after=before)
            else:
                signature = sketch.add(tasks.step)
            steps[sketch.last] = workflow.add(signature, after=after)
        everything = tuple(steps)
        workflow.add(sketch.add(tasks.joins, list(everything), after=everything), after=list(steps.values()))
        self._start(sketch, workflow.enqueue)

    def stops(self) -> None:
        """A workflow that is cancelled a moment later."""
        sketch = Sketch(self)
        members = [sketch.add(tasks.step) for _ in range(self._dice.randint(2, 6))]
        numbers = tuple(number for number, *_ in sketch.named)
        callback = sketch.add(tasks.joins, list(numbers), after=numbers)
        self._cancel(sketch, lambda: chord(members, callback).enqueue(), self._dice.choice([0, 0.02, 0.2]))

    def halts(self) -> None:
        """A workflow of more jobs than there are threads, which is cancelled while they run."""
        sketch = Sketch(self)
        members = [sketch.add(tasks.lingers, queue=HALTED) for _ in range(self._dice.randint(100, 160))]
        numbers = tuple(number for number, *_ in sketch.named)
        callback = sketch.add(tasks.joins, list(numbers), after=numbers)
        self._cancel(sketch, lambda: chord(members, callback).enqueue(), self._dice.uniform(0.1, 0.6))

    def _cancel(self, sketch: Sketch, enqueue: Callable[[], Any], seconds: float) -> None:
        results: list[Any] = []
        if self._start(sketch, lambda: results.append(enqueue()), undo=0) != "committed":
            return
        stop.wait(seconds)
        named = [number for number, *_ in sketch.named]
        witness().say("recall", named)
        results[0].cancel()
        witness().say("recalled", named)

    def _fate(self) -> str | None:
        if not self.chance(DOOMED):
            return None
        return "forever" if self.chance(0.25) else "doomed"

    def _dying(self, fate: str) -> Any:
        task = tasks.doomed if fate == "doomed" else tasks.fails_for_ever
        return task.using(max_attempts=self._dice.randint(1, 2))

    def _start(self, sketch: Sketch, body: Callable[[], Any], *, undo: float = ROLLED_BACK) -> str:
        witness().say("after", sketch.edges)
        witness().say("under", sketch.limited)
        ended = self._commit(sketch.named, body, undo=undo)
        if ended == "committed":
            witness().say("workflow", [number for number, *_ in sketch.named])
        return ended

    # Unique tasks

    def uniques(self) -> None:
        """One of several unique tasks, which other producers enqueue as well."""
        number, name = self.number(), self._dice.choice(["x", "y"])
        made: list[bool] = []
        alone, seconds = self.chance(0.5), self._dice.choice([0.002, 0.5, 1.5])
        witness().say("try", [[number, "sure", "unique"]])

        def body() -> None:
            made[:] = [tasks.unique.using(queue_name="sure").enqueue(number, name, seconds).created is not False]

        if alone:
            body()
            ended = "committed"
        else:
            ended = self._transact(body)
        if ended == "committed" and made == [True]:
            witness().say("unique", number, name)
        if ended != "doubt":
            witness().say("committed" if ended == "committed" and made == [True] else "undone", [number])

    def newest(self) -> None:
        """A unique task that takes the place of the one before, if that waits."""
        number = self.number()
        bound = tasks.unique.using(
            queue_name="swift", key=f"newest-{self._place}", unique_until="start", on_conflict="replace"
        )
        if self._newest is not None:
            witness().say("recall", [self._newest])
        self._newest = number
        witness().say("try", [[number, "swift", "unique"]])
        try:
            bound.enqueue(number, "", 0.002)
        except (Error, LeaseQueueError):
            # What is in doubt is said nothing of; the next one takes its place as well.
            connection.close()
            raise
        witness().say("committed", [number])
