"""The producer of what limits and workflows hold, and of unique tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django_leasequeue import NewJob, Queue
from django_leasequeue.tasks import Limit, Workflow, chain, chord, group

from . import tasks
from .evidence import HALTED, SECOND, witness
from .load import Producer, stop

#: Keys of which there is one job at a time, of each producer; and those of two, which producers share.
OWN, SHARED = 3, ("a", "b", "c")
#: Of the jobs for those who share a buffer: one at a time of each of so many keys.
FOLD, FOLDS = Limit("fold:{key}", concurrency=1), 6
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
        self, task: Any, *args: Any, after: Sequence[int] = (), mode: str = "node", tolerant: bool = False,
        queue: str = "",
    ) -> Any:  # fmt: skip
        """Return the signature of a call; ``joins`` takes what those before it return, other tasks nothing."""
        number = next(self._producer.numbers)
        queue = queue or self._producer.queue()
        self.named.append([number, queue, mode])
        if after:
            self.edges.append([number, list(after), tolerant])
        key = ""
        if task in (tasks.work, tasks.joins) and self._producer.chance(0.15):
            key = self._producer.dice.choice(SHARED)
            task = task.using(limit=tasks.TWO)
            self.limited.append([number, f"two:{key}", 2, False])
        task = task.using(queue_name=queue)
        if tasks.joins.name == task.name:
            return task.s(number, *args, key=key)
        return task.si(number, *args, **({"key": key} if key else {}))

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(number for number, *_ in self.named)


class FlowProducer(Producer):
    def __init__(self, place: int, seed: int, deeds: dict[str, int], pause: float) -> None:
        super().__init__(place, seed, deeds, pause)
        self._place = place
        self._newest: int | None = None

    # Limits

    def ordered(self) -> None:
        """Some jobs of a key that has one at a time."""
        at = self.dice.randrange(OWN)
        key, queue = f"{self._place}-{at}", ("sure", "swift")[at % 2]
        numbers = self.some(1, 4)
        one: dict[str, Any] = {"queue_name": queue, "limit": tasks.ONE}
        calls = [partial(self._one_step(one), number, key=key) for number in numbers]
        if self.chance(0.02):
            calls[0] = partial(tasks.work.using(**one).enqueue, numbers[0], 5.0, stubborn=True, key=key)
        witness().say("under", [[number, f"one:{key}", 1, True] for number in numbers])
        self.commit([[n, queue, "limited"] for n in numbers], lambda: [call() for call in calls], ROLLED_BACK)

    def _one_step(self, options: dict[str, Any]) -> Callable[..., Any]:
        if self.chance(0.04):
            return tasks.fails.using(**options).enqueue
        return partial(tasks.work.using(**options).enqueue, seconds=self.seconds() if self.chance(0.5) else 0.002)

    def pairs(self) -> None:
        key, named, calls = self.dice.choice(SHARED), [], []
        for number in self.some(2, 6):
            queue, fails = self.queue(), self.chance(0.05)
            named.append([number, queue, "doomed" if fails else "limited"])
            if fails:
                doomed = tasks.doomed.using(queue_name=queue, limit=tasks.TWO, max_attempts=1)
                calls.append(partial(doomed.enqueue, number, key))
            else:
                work = tasks.work.using(queue_name=queue, limit=tasks.TWO)
                calls.append(partial(work.enqueue, number, self.seconds(), key=key))
        witness().say("under", [[number, f"two:{key}", 2, False] for number, *_ in named])
        self.commit(named, lambda: [call() for call in calls], ROLLED_BACK)

    def paced(self) -> None:
        # So many that some wait most of the time, and what gathers is not too much for the end.
        numbers = self.some(1, 12)
        bound = tasks.work.using(queue_name="sure", limit=tasks.PACE)
        witness().say("paced", numbers, tasks.RATE, tasks.PER * SECOND)
        named = [[number, "sure", "limited"] for number in numbers]
        self.commit(named, lambda: bound.enqueue_many([(number,) for number in numbers]), ROLLED_BACK)

    def recalls(self) -> None:
        """Some jobs of a key that has two at a time; some of them are cancelled again."""
        key, queue, numbers = self.dice.choice(SHARED), self.queue(), self.some(3, 6)
        bound = tasks.work.using(queue_name=queue, limit=tasks.TWO)
        results: list[Any] = []
        witness().say("under", [[number, f"two:{key}", 2, False] for number in numbers])
        named = [[number, queue, "limited"] for number in numbers]
        ended = self.commit(named, lambda: results.extend(bound.enqueue(number, 0.05, key=key) for number in numbers))
        if ended != "committed":
            return
        stop.wait(self.dice.choice([0, 0.02, 0.2]))
        for number, result in list(zip(numbers, results, strict=True))[1:]:
            witness().say("recall", [number])
            witness().say("recalled" if result.cancel() else "stays", [number])

    def folds(self) -> None:
        key, numbers = self.dice.randrange(FOLDS), self.some(1, 6)
        witness().say("under", [[number, f"fold:{key}", 1, False] for number in numbers])
        jobs = [NewJob({"job": number, "key": key}, limit=FOLD) for number in numbers]
        named = [[number, "folded", "limited"] for number in numbers]
        self.commit(named, lambda: Queue("folded").enqueue_many(jobs), ROLLED_BACK)

    # Workflows

    def chains(self) -> None:
        sketch = Sketch(self)
        steps = [sketch.add(tasks.work)]
        fate = self._fate()
        place = self.dice.randint(1, 3)
        dying = 0
        for at in range(1, self.dice.randint(3, 5)):
            before = sketch.numbers[-1]
            lost = fate == "forever" and at > place
            if fate and at == place:
                steps.append(sketch.add(self._dying(fate), after=(before,), mode=fate))
                dying = sketch.numbers[-1]
            elif fate is None and self.chance(0.5):
                steps.append(sketch.add(tasks.joins, before, after=(before,)))
            else:
                steps.append(sketch.add(tasks.work, after=(before,), mode="never" if lost else "node"))
        mode = "failure" if fate == "doomed" else "node"
        failed = sketch.add(tasks.work, after=(dying,), mode=mode, tolerant=True) if dying else None
        self._start(sketch, lambda: chain(*steps, on_failure=failed).enqueue())

    def chords(self) -> None:
        sketch = Sketch(self)
        fate = self._fate()
        count = self.dice.randint(2, 12)
        members = []
        for at in range(count):
            if fate and at == count // 2:
                members.append(sketch.add(self._dying(fate), mode=fate))
            else:
                members.append(sketch.add(tasks.work))
        tolerant = fate == "forever" or self.chance(0.2)
        numbers = sketch.numbers
        callback = sketch.add(tasks.joins, list(numbers), tolerant, after=numbers, tolerant=tolerant)
        self._start(sketch, lambda: chord(group(members), callback, allow_failures=tolerant).enqueue())

    def graphs(self) -> None:
        """A graph: some jobs, more that come after some of them each, and one at the end."""
        sketch = Sketch(self)
        workflow = Workflow(name="graph")
        steps: dict[int, Any] = {}
        fate = "doomed" if self.chance(DOOMED) else None
        for at in range(self.dice.randint(4, 10)):
            before = self.dice.sample(sorted(steps), min(len(steps), self.dice.randint(1, 3))) if at > 1 else []
            after = [steps[number] for number in before]
            if fate and at == 2:
                signature = sketch.add(self._dying(fate), after=before, mode=fate)
            elif before:
                signature = sketch.add(tasks.joins, before, after=before)
            else:
                signature = sketch.add(tasks.work)
            steps[sketch.numbers[-1]] = workflow.add(signature, after=after)
        workflow.add(sketch.add(tasks.joins, list(steps), after=list(steps)), after=list(steps.values()))
        self._start(sketch, workflow.enqueue)

    def stops(self) -> None:
        self._cancel(tasks.work, self.dice.randint(2, 6), "", self.dice.choice([0, 0.02, 0.2]))

    def halts(self) -> None:
        """A workflow of more jobs than there are threads, which is cancelled while they run."""
        self._cancel(tasks.lingers, self.dice.randint(100, 160), HALTED, self.dice.uniform(0.1, 0.6))

    def _cancel(self, task: Any, count: int, queue: str, seconds: float) -> None:
        sketch = Sketch(self)
        members = [sketch.add(task, queue=queue) for _ in range(count)]
        callback = sketch.add(tasks.joins, list(sketch.numbers), after=sketch.numbers)
        results: list[Any] = []
        if self._start(sketch, lambda: results.append(chord(members, callback).enqueue()), undo=0) != "committed":
            return
        stop.wait(seconds)
        witness().say("recall", sketch.numbers)
        results[0].cancel()
        witness().say("recalled", sketch.numbers)

    def _fate(self) -> str | None:
        if not self.chance(DOOMED):
            return None
        return "forever" if self.chance(0.25) else "doomed"

    def _dying(self, fate: str) -> Any:
        task = tasks.doomed if fate == "doomed" else tasks.fails_for_ever
        return task.using(max_attempts=self.dice.randint(1, 2))

    def _start(self, sketch: Sketch, body: Callable[[], Any], *, undo: float = ROLLED_BACK) -> str:
        witness().say("after", sketch.edges)
        witness().say("under", sketch.limited)
        if (ended := self.commit(sketch.named, body, undo)) == "committed":
            witness().say("workflow", sketch.numbers)
        return ended

    # Unique tasks

    def uniques(self) -> None:
        """One of several unique tasks, which other producers enqueue as well."""
        number, name = next(self.numbers), self.dice.choice(["x", "y"])
        made: list[bool] = []
        alone, seconds = self.chance(0.5), self.dice.choice([0.002, 0.5, 1.5])
        witness().say("try", [[number, "sure", "unique"]])

        def body() -> None:
            made[:] = [tasks.unique.using(queue_name="sure").enqueue(number, name, seconds).created is not False]

        if alone:
            body()
        ended = "committed" if alone else self.transact(body)
        if ended == "committed" and made == [True]:
            witness().say("unique", number, name)
        elif ended == "committed":
            ended = "undone"
        if ended != "doubt":
            witness().say(ended, [number])

    def newest(self) -> None:
        """A unique task that takes the place of the one before, if that waits."""
        if self._newest is not None:
            witness().say("recall", [self._newest])
        options: dict[str, Any] = {"key": f"newest-{self._place}", "unique_until": "start", "on_conflict": "replace"}
        # What is in doubt is said nothing of; the next one takes its place as well.
        with self.told("swift", "unique") as (self._newest,):
            tasks.unique.using(queue_name="swift", **options).enqueue(self._newest, "", 0.002)
