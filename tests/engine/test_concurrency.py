"""Many at once, on connections of their own: nobody gets another's, nothing is lost, a slow host stops nobody."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from threading import Lock
from typing import Any

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, Failure, NewJob, Release
from django_leasequeue.engine.leases.floor import Proposals
from django_leasequeue.models import DeadLetter, EventKind, FloorKind, JobEvent, LeaseEvent, QueueFloor, QueueRank

from .flow import differences
from .helpers import NODE, OTHER, claim, crowd, enqueue, make, one, open_transaction, own_connection, put, raise_floors

pytestmark = pytest.mark.django_db(transaction=True)


KIND = {int(kind): kind.label for kind in EventKind}


def check_everything(*numbers: int) -> dict[int, list[LeaseEvent]]:
    """Replay every job: it has one holder at most, and only the holder ends, releases or extends the lease.

    The tables are what the log says. Each of the jobs that are named was acknowledged once, and no other was.
    """
    found: dict[int, list[LeaseEvent]] = defaultdict(list)
    for event in JobEvent.objects.order_by("id"):
        found[event.seq].append(event)
    for seq, events in found.items():
        holder: int | None = None
        deadline: datetime | None = None
        deliveries = 0
        for event in events:
            kind = KIND[event.kind]
            where = f"job {seq}: {[(KIND[e.kind], e.claim, e.node) for e in events]}"
            if kind == "claimed":
                assert holder is None, where
                deliveries += 1
                assert event.deliveries == deliveries, where
                holder, deadline = event.claim, event.deadline
            elif kind in ("extended", "released", "acked", "failed"):
                assert event.claim == holder, where
                assert event.occurred_at <= deadline, where
                holder, deadline = (holder, event.deadline) if kind == "extended" else (None, None)
            elif kind == "expired":
                assert event.claim == holder, where
                assert event.occurred_at > deadline, where
                holder = None
            elif kind == "dead_lettered":
                holder = None
            else:
                assert kind == "enqueued", where
        assert [KIND[event.kind] for event in events].count("acked") in ([1] if seq in numbers else [0, 1])
    assert differences() == []
    assert set(found) == set(numbers) or not numbers
    return found


@pytest.mark.parametrize("tags", [None, ["red", "blue"]], ids=str)
def test_producers_and_claimers_of_several_queues_with_retries(tags: list[str] | None) -> None:
    for name in ("first", "second"):
        make(name, max_deliveries=0, requeue="back" if name == "second" else "original")
    total, patience = 800, time.monotonic() + 300
    done: Counter[int] = Counter()
    lock = Lock()

    def work(number: int) -> None:
        dice = random.Random(number)
        with own_connection() as executor:
            if number < 2:
                for _ in range(total // 40):
                    found = [(dice.randint(0, 3), dice.choice(["red", "blue"])) for _ in range(20)]
                    jobs = [engine.NewJob(priority=priority, tag=tag) for priority, tag in found]
                    with executor.connection.transaction() if number else nullcontext():  # the second is slow
                        executor.run(engine.enqueue(("first", "second")[number], jobs[:10]))
                        executor.run(engine.enqueue(("first", "second")[number], jobs[10:]))
                return
            if number < 4:
                proposals = Proposals()
                while sum(done.values()) < total and time.monotonic() < patience:
                    executor.run(engine.advance_floors(proposals))
                return
            node = f"node-{number}"
            while sum(done.values()) < total and time.monotonic() < patience:
                jobs = executor.run(engine.claim(["first", "second"], node, dice.randint(1, 30), tags=tags))
                back = [job for job in jobs if dice.random() < 0.3]
                executor.run(engine.release([Release(job.seq, job.token, 0, Failure("again")) for job in back], node))
                settled = executor.run(engine.ack([job.seq for job in jobs if job not in back], node))
                with lock:
                    done.update(settled.ok)

    crowd(8, work)
    assert (len(done), set(done.values())) == (total, {1})
    found = check_everything()
    assert any(len(events) > 3 for events in found.values())
    assert set(QueueFloor.objects.values_list("kind", flat=True)) >= {FloorKind.READY}


def jobs_left(executor: ConnectionExecutor) -> bool:
    row = executor.connection.execute("SELECT EXISTS (SELECT FROM leasequeue_job)").fetchone()
    return bool(row and row[0])


def test_workers_whose_connections_are_killed_lose_nothing(clock) -> None:
    """Backends are terminated in the middle of whatever they do; what they held comes back when its lease is over."""
    make("work", lease_ms=10_000)
    numbers = put(600)
    pids: dict[int, int] = {}
    lost: list[int] = []

    def work(number: int) -> None:
        dice = random.Random(number)
        node = f"node-{number}"
        while True:
            try:
                with own_connection() as executor:
                    pids[number] = executor.connection.info.backend_pid
                    while jobs_left(executor) or not lost:
                        jobs = executor.run(engine.claim("work", node, dice.randint(1, 10)))
                        if not jobs:
                            clock.advance(seconds=11)
                        executor.run(engine.ack([job.seq for job in jobs], node, tokens=[job.token for job in jobs]))
                    return
            except psycopg.OperationalError:
                lost.append(number)

    def kill() -> None:
        dice = random.Random(99)
        with own_connection() as executor:
            while not lost or (jobs_left(executor) and len(lost) < 40):
                victim = pids.get(dice.randrange(4), 0)
                executor.connection.execute("SELECT pg_terminate_backend(%s::int)", [victim])

    crowd(5, lambda number: work(number) if number < 4 else kill())
    check_everything(*numbers)


@pytest.mark.slow
def test_leases_that_expire_under_slow_workers(clock) -> None:
    make("work", lease_ms=1_000)
    numbers = put(300)
    refused: Counter[str] = Counter()

    def work(number: int) -> None:
        dice = random.Random(number)
        node = f"node-{number % 3}"  # two threads share a name: only the token tells them apart
        with own_connection() as executor:
            while jobs_left(executor):
                jobs = executor.run(engine.claim("work", node, dice.randint(1, 8)))
                tokens = [job.token for job in jobs]
                for _ in range(dice.choice([0, 0, 1, 3])):
                    clock.advance(seconds=dice.choice([0.2, 0.9]))
                    executor.run(engine.extend([job.seq for job in jobs], node, 1_000, tokens=tokens))
                if dice.random() < 0.3 or not jobs:
                    clock.advance(seconds=1.1)
                settled = executor.run(engine.ack([job.seq for job in jobs], node, tokens=tokens))
                refused.update(outcome.value for outcome in settled.outcomes.values())

    crowd(6, work)
    assert refused.pop("ok") == len(numbers)
    assert refused
    assert set(refused) <= {"expired", "stale_token", "not_held", "not_found"}
    found = check_everything(*numbers)
    assert any(event.deliveries and event.deliveries > 1 for events in found.values() for event in events)


OPTIONS: dict[str, list[Any]] = {
    "requeue": ["original", "back"], "exhaust_at": ["claim", "release"], "dead_letter": [None, "self", "letters"],
    "late_ack": ["reject", "accept"], "dedup_until": ["terminal", "claimed"], "max_deliveries": [0, 2, 3],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.sample
@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_order_of_calls_the_tables_are_what_the_log_says(clock, seed: int) -> None:
    """A random walk: no job is leased twice, none is lost, none stands where no claim, sweep or floor finds it."""
    dice = random.Random(seed)
    make("letters")
    queue = make("work", lease_ms=2_000, **{option: dice.choice(values) for option, values in OPTIONS.items()})
    run, seen, until = engine.run, [(NODE, 0, 0)], dict[int, datetime]()

    def enqueue() -> None:
        fields = {"key": dice.choice([None, None, "a", "b"]), "max_deliveries": dice.choice([None, None, 0, 1, 2])}
        fields |= {"delay_ms": dice.choice([0, 400, 5_000]), "ttl_ms": dice.choice([None, None, 3_000, 60_000])}
        run(engine.enqueue("work", [engine.NewJob(priority=dice.randint(-1, 10), **fields) for _ in range(3)]))

    def claim() -> None:
        node, lease_ms = dice.choice([NODE, OTHER]), dice.choice([None, 100, 60_000])
        jobs = run(engine.claim("work", node, dice.randint(1, 4), lease_ms=lease_ms, grace_ms=dice.choice([0, 2_000])))
        assert [job.rank for job in jobs] == sorted(job.rank for job in jobs)
        for job in jobs:
            assert until.get(job.seq, job.claimed_at) <= clock.now, "somebody holds it"
            until[job.seq] = job.deadline
            seen.append((node, job.seq, job.token))

    def settle() -> None:
        node, seq, token = dice.choice(seen)
        known = dice.choice([token, token, None])
        ways = [
            engine.finish([engine.Ending(seq, known)], node),
            engine.finish([engine.Ending(seq, known, failure=Failure("E"))], node),
            engine.release([Release(seq, known, dice.choice([0, 1_000]))], node, unstarted=dice.random() < 0.3),
            engine.extend([seq], node, 5_000, tokens=None if known is None else [known]),
        ]
        settled = run(dice.choice(ways))
        until.pop(seq, None) if settled.ok and not settled.deadlines else until.update(settled.deadlines)

    others = [
        lambda: run(engine.cancel("work", seqs=[dice.choice(seen)[1] + dice.randint(0, 2)])),
        lambda: run(engine.redrive("work", list(DeadLetter.objects.values_list("seq", flat=True)[:2]))),
        lambda: run(engine.pause("work", paused=dice.random() < 0.3)),
        lambda: run(dice.choice([engine.sweep, engine.promote, engine.expire])([queue])),
        lambda: (clock.advance(seconds=1.1), raise_floors(queue)),
        lambda: clock.advance(milliseconds=dice.choice([1, 100, 1_000, 2_001, 70_000])),
    ]
    for number in range(200):
        dice.choice([enqueue, claim, settle, settle, dice.choice(others)])()
        if number % 20 == 0:
            assert differences() == []
    assert differences() == []


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
