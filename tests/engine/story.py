"""A bit of everything that the engine does, told on any connection."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob
from django_leasequeue.exceptions import InvalidOption, QueueNotFound
from django_leasequeue.models import JobEvent, JobResult, LiveJob
from tests.engine.helpers import NODE, outcomes

Run = Callable[[Any], Awaitable[Any]]


async def story(run: Run) -> list[Any]:
    """A bit of everything; returns what the caller sees, without numbers."""
    told: list[Any] = []
    told.append(await run(engine.create("work", result_ttl_ms=60_000, max_deliveries=2, dead_letter="graveyard")))
    jobs = [NewJob(data={"n": 1}, key="a"), NewJob(body=b"\x00\xff", tag="t"), NewJob(key="a")]
    told.append([(answer.status.value, answer.state) for answer in await run(engine.enqueue("work", jobs))])
    many = await run(engine.enqueue("work", [NewJob(data=number) for number in range(120)]))
    told.append({answer.state for answer in many})
    leased = await run(engine.claim("work", NODE, 3))
    told.append([(job.data, job.body, job.key, job.tag, job.deliveries, job.errors) for job in leased])
    first, second, third = (job.seq for job in leased)
    told.append(outcomes(await run(engine.extend([first, 10**15], NODE, 60_000))))
    endings = [Ending(first, leased[0].token, result=[1]), Ending(second, failure=Failure("E", "m"))]
    told.append(outcomes(await run(engine.finish(endings, NODE))))
    told.append((await run(engine.nack([third], NODE, delay_ms=60_000))).released[third].state)
    told.append(len(await run(engine.cancel("work", seqs=[third]))))
    told.append(await run(engine.purge("work", size=100)))
    told.append((await run(engine.get("work"))).config["max_deliveries"])
    for bad, error in ((engine.claim("nowhere", NODE), QueueNotFound), (engine.claim("work", ""), InvalidOption)):
        with pytest.raises(error):
            await run(bad)
    return told


EXPECTED = [
    True, [("queued", "ready"), ("queued", "ready"), ("duplicate", "ready")], {"ready"},
    [({"n": 1}, None, "a", None, 1, []), (None, b"\x00\xff", None, "t", 1, []), (0, None, None, None, 1, [])],
    ["ok", "not_found"], ["ok", "ok"], "delayed", 1, 100, 2,
]  # fmt: skip


def check(told: list[Any]) -> None:
    assert (told, JobResult.objects.count(), LiveJob.objects.count()) == (EXPECTED, 2, 19)
    kinds = list(JobEvent.objects.order_by("kind").values_list("kind", flat=True))
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {1: 122, 2: 3, 3: 1, 4: 1, 5: 1, 6: 1, 10: 101}


def tell(run: Callable[[Any], Any]) -> list[Any]:
    """Tell the story with a sync executor: nothing in it ever waits for the loop."""

    async def at_once(operation: Any) -> Any:
        return run(operation)

    teller = story(at_once)
    try:
        teller.send(None)
    except StopIteration as stop:
        return list(stop.value)
    raise AssertionError("it waited")
