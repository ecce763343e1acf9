"""One mechanism makes the methods for threads and for coroutines: of one body, whose types and place both show."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import django_leasequeue
from django_leasequeue import BufferedQueue, Heartbeat, Queue
from django_leasequeue.client import AsyncClient, Client
from django_leasequeue.compat.jobqueue import Queue as JobQueue
from django_leasequeue.tasks import LeaseQueueBackend, LeaseQueueTask
from django_leasequeue.twins import Body, Give, Twins, aiterate, arun, either, iterate, run, sync, twin

ROOT = Path(django_leasequeue.__file__).parent
#: Methods that exist for one kind of caller only: a thread has no use for ``async with``, and so on.
ALONE = {(BufferedQueue, "aenqueue_and_wait")}


def methods(kind: type) -> dict[str, Any]:
    found = {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {name: item for name, item in found.items() if inspect.isfunction(item)}


def pairs(kind: type) -> list[tuple[Any, Any]]:
    """Return the methods for threads, each with its twin; fail where one has none."""
    found = methods(kind)
    return [
        (item, found[f"a{name}"])
        for name, item in found.items()
        if not (name.startswith("a") and name[1:] in found) and (kind, name) not in ALONE
    ]


def own(kind: type, other: type) -> list[tuple[Any, Any]]:
    found, twins = methods(kind), methods(other)
    assert found.keys() - {"close"} == twins.keys() - {"aclose"}
    return [(found[name], twins[name]) for name in found if name != "close" and found[name] is not twins[name]]


BOTH = {
    "Queue": pairs(Queue), "BufferedQueue": pairs(BufferedQueue), "Client": own(Client, AsyncClient),
    "Heartbeat": [(Heartbeat.beat, Heartbeat.abeat)],
    "compat": [
        (item, getattr(JobQueue, f"a{name}"))
        for name, item in methods(JobQueue).items()
        if hasattr(item, "__wrapped__") and not name.startswith("a")
    ],
}  # fmt: skip
ALL = [pytest.param(*pair, id=f"{kind}.{pair[0].__name__}") for kind, found in BOTH.items() for pair in found]


def test_all_are_looked_at_and_a_queue_shows_its_methods_only() -> None:
    assert {kind: len(found) >= 1 for kind, found in BOTH.items()} == dict.fromkeys(BOTH, True)
    assert len(BOTH["Queue"]) >= 25
    assert len(BOTH["Client"]) == 15
    values = {"adding", "node", "using"}
    assert [name for name in dir(Queue) if not name.startswith("_") and name not in {*methods(Queue), *values}] == []
    assert [name for name in methods(Queue) if name.endswith("_steps")] == []


@pytest.mark.parametrize(("method", "other"), ALL)
def test_twins_take_the_same_and_return_the_same(method: Any, other: Any) -> None:
    mine, its = inspect.signature(method), inspect.signature(other)
    if inspect.isasyncgenfunction(other) or re.search("Iterator|Generator", str(its.return_annotation)):
        assert list(mine.parameters) == list(its.parameters)
        return
    assert (mine.parameters, mine.return_annotation) == (its.parameters, its.return_annotation)
    assert inspect.iscoroutinefunction(other)
    assert not inspect.iscoroutinefunction(method)


@pytest.mark.parametrize(("method", "other"), ALL)
def test_types_are_real_and_the_source_is_the_body(method: Any, other: Any) -> None:
    if hasattr(method, "__wrapped__"):
        for found in (method, other):
            signature = inspect.signature(found)
            said = [item.annotation for item in signature.parameters.values()] + [signature.return_annotation]
            assert [item for item in said if isinstance(item, str)] == []
            assert get_type_hints(found)["return"] == signature.return_annotation
        assert inspect.unwrap(other) is inspect.unwrap(method)
    body = inspect.unwrap(method)
    [home] = [kind for kind in ALL_KINDS if method.__name__ in vars(kind) and vars(kind)[method.__name__] is method]
    assert inspect.getsourcefile(body) == inspect.getsourcefile(home)
    assert f"def {method.__name__}(" in "".join(inspect.getsourcelines(method)[0][:3])
    assert inspect.getdoc(method)


ALL_KINDS = {base for kind in (Queue, BufferedQueue, Client, Heartbeat, JobQueue) for base in kind.__mro__[:-1]}


@pytest.mark.parametrize("kind", [LeaseQueueBackend, LeaseQueueTask])
def test_tasks_have_twins_too(kind: type) -> None:
    """Their classes are Django's, whose types have no parameters on Django 6: both methods are written out."""
    for name, item in methods(kind).items():
        if inspect.iscoroutinefunction(item) and name.startswith("a"):
            other = inspect.signature(getattr(kind, name[1:]))
            assert inspect.signature(item).parameters == other.parameters
            assert inspect.signature(item).return_annotation == other.return_annotation


# The mechanism


class Counter(Twins):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def get(self, number: int) -> int:
        self.seen.append("thread")
        return self._got(number)

    async def aget(self, number: int) -> int:
        await asyncio.sleep(0)
        self.seen.append("coroutine")
        return self._got(number)

    def _got(self, number: int) -> int:
        if number < 0:
            raise LookupError(number)
        return number

    @sync
    def total(self, *numbers: int) -> Body[int]:
        found = 0
        try:
            for number in numbers:
                try:
                    found += yield either(self.get, self.aget, number)
                except LookupError:
                    found += 100
        finally:
            self.seen.append("end")
        return found

    atotal = twin(total)

    def items(self, *numbers: int) -> Iterator[int]:
        return iterate(self._items(*numbers))

    def aitems(self, *numbers: int) -> AsyncIterator[int]:
        return aiterate(self._items(*numbers))

    def _items(self, *numbers: int) -> Generator[Any, Any, None]:
        try:
            for number in numbers:
                found = yield either(self.get, self.aget, number)
                yield Give(found)
        finally:
            self.seen.append("end")


async def test_one_body_is_carried_out_in_both_ways_and_takes_errors_of_its_steps() -> None:
    counter = Counter()
    assert counter.total(1, 2) == 3
    assert counter.seen == ["thread", "thread", "end"]
    assert await counter.atotal(1, 2) == 3
    assert counter.seen[3:] == ["coroutine", "coroutine", "end"]
    counter = Counter()
    assert counter.total(1, -2, 3) == 104
    assert await counter.atotal(1, -2, 3) == 104
    counter.seen.clear()
    with pytest.raises(LookupError):
        run(counter._items(1, -2), lambda step: step.item if isinstance(step, Give) else counter.get(*step.args))
    with pytest.raises(LookupError):
        await arun(counter._items(-1))
    assert counter.seen.count("end") == 2


async def test_a_cancelled_coroutine_ends_its_body() -> None:
    counter, begun = Counter(), asyncio.Event()

    async def hang(number: int) -> int:
        begun.set()
        await asyncio.Event().wait()
        return number

    counter.aget = hang  # type: ignore[method-assign]
    task = asyncio.create_task(counter.atotal(1))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert counter.seen == ["end"]


async def test_items_come_as_they_are_asked_for_and_closing_ends_the_body() -> None:
    counter = Counter()
    assert list(counter.items(1, 2)) == [1, 2]
    assert [item async for item in counter.aitems(1, 2)] == [1, 2]
    with pytest.raises(LookupError):
        list(counter.items(1, -1))
    counter.seen.clear()
    items = iterate(counter._items(1, 2))
    assert next(items) == 1
    items.close()
    assert counter.seen == ["thread", "end"]
    counter.seen.clear()
    more = aiterate(counter._items(1, 2))
    assert await anext(more) == 1
    await more.aclose()
    assert counter.seen == ["coroutine", "end"]
