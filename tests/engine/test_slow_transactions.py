"""A host's transaction that stays open after an engine call must not stop anybody else on the same queue."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, NewJob
from django_leasequeue.models import QueueRank

from .helpers import NODE, OTHER, claim, enqueue, make, one, open_transaction, own_connection, put, raise_floors

pytestmark = pytest.mark.django_db(transaction=True)

Run = Callable[[Any], Any]


class Scene:
    """A queue with jobs in every state, and what the slow transaction and the others do with them."""

    def __init__(self, clock) -> None:
        self.clock = clock
        self.queue = make("work", max_deliveries=2, exhaust_at="release", dead_letter="self", result_ttl_ms=60_000)
        (self.spent,) = put()
        engine.run(engine.nack([one().seq], NODE))
        self.spent_job = one()
        (self.dying,) = put(1, max_deliveries=1)
        one()
        (self.dead,) = put(1, max_deliveries=1)
        engine.run(engine.nack([one().seq], NODE))
        # Each in a claim of its own: calls that settle jobs of one claim take turns.
        self.held = [job.seq for _ in range(6) for job in self.lease(1)]
        self.expiring = [job.seq for job in self.lease(4, node=OTHER, lease_ms=1_000)]
        enqueue(*[NewJob(delay_ms=1_000)] * 3)
        enqueue(*[NewJob(ttl_ms=1_000)] * 3)
        self.cancellable = put(4)
        put(20)

    def lease(self, count: int, **call: Any) -> list[engine.LeasedJob]:
        put(count)
        jobs = claim(count, **call)
        assert len(jobs) == count
        return jobs


SLOW: dict[str, Callable[[Scene], list[Any]]] = {
    # The first job of a queue, the first uses of two priorities.
    "enqueue": lambda s: [
        *(engine.enqueue(queue, [NewJob(priority=priority)]) for queue, priority in (("fresh", 0), ("work", 7))),
        engine.enqueue("work", [NewJob(priority=8)] * 150),
    ],
    "claim": lambda s: [engine.claim("work", "slow", 3)],
    "ack": lambda s: [engine.ack(s.held[:2], NODE)],
    "nack": lambda s: [engine.nack(s.held[:2], NODE)],
    "nack later": lambda s: [engine.nack(s.held[:2], NODE, delay_ms=5_000)],
    "nack to death": lambda s: [engine.nack([s.spent], NODE)],
    "extend": lambda s: [engine.extend(s.held[:2], NODE, 1_000)],
    "cancel": lambda s: [engine.cancel("work", seqs=s.cancellable[:1])],
    "purge": lambda s: [engine.purge("work", size=1)],
    "redrive": lambda s: [engine.redrive("work", [s.dead])],
    "sweep": lambda s: [engine.sweep([s.queue])],
    "promote": lambda s: [engine.promote([s.queue])],
    "expire": lambda s: [engine.expire([s.queue])],
}

OTHERS: dict[str, Callable[[Scene, Run], None]] = {
    "enqueue": lambda s, run: run(engine.enqueue("work", [NewJob(priority=0), NewJob(priority=7)])),
    "first job": lambda s, run: (run(engine.enqueue("fresh", [NewJob()])), run(engine.claim("fresh", OTHER, 5))[0]),
    "enqueue in bulk": lambda s, run: run(engine.enqueue("work", [NewJob()] * 150)),
    "claim": lambda s, run: run(engine.claim("work", "third", 3)),
    "claim after expiry": lambda s, run: (s.clock.advance(seconds=5), run(engine.claim("work", "third", 3))),
    "ack": lambda s, run: run(engine.ack(s.held[3:4], NODE)),
    "nack": lambda s, run: run(engine.nack(s.held[4:5], NODE)),
    "extend": lambda s, run: run(engine.extend(s.held[5:6], NODE, 30_000)),
    "floors": lambda s, run: raise_floors(run=run),
    "sweep": lambda s, run: (s.clock.advance(seconds=5), run(engine.sweep([s.queue]))),
    "promote": lambda s, run: (s.clock.advance(seconds=5), run(engine.promote([s.queue]))),
    "expire": lambda s, run: (s.clock.advance(seconds=5), run(engine.expire([s.queue]))),
}


@pytest.mark.parametrize("slow", SLOW)
def test_the_others_go_on(clock, slow: str) -> None:
    scene = Scene(clock)
    make("fresh")
    clock.advance(seconds=2)
    stuck = []
    with open_transaction() as host, own_connection() as other:
        for operation in SLOW[slow](scene):
            host.run(operation)
        other.connection.execute("SET statement_timeout = '60s'")
        for name, act in OTHERS.items():
            try:
                act(scene, ConnectionExecutor(other.connection).run)
            except psycopg.errors.QueryCanceled as error:
                stuck.append((name, str(error)))
        host.connection.commit()
    assert stuck == []
    if slow == "enqueue":
        assert set(QueueRank.objects.filter(queue_id=scene.queue).values_list("rank", flat=True)) == {0, -7, -8}
        assert {job.rank for job in claim(1_000)} >= {-7, -8}
