"""Many claimers at once, on connections of their own: nobody gets what another holds, and nothing is lost."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import datetime
from threading import Lock
from typing import Any

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, Failure, Release
from django_leasequeue.engine.leases.floor import Proposals
from django_leasequeue.engine.verify import snapshot, verify
from django_leasequeue.models import DeadLetter, EventKind, FloorKind, JobEvent, LeaseEvent, QueueFloor

from .helpers import NODE, OTHER, make, own_connection, put, raise_floors

pytestmark = pytest.mark.django_db(transaction=True)

KIND = {int(kind): kind.label for kind in EventKind}


def histories() -> dict[int, list[LeaseEvent]]:
    """The events of each job, in the order in which they happened."""
    found: dict[int, list[LeaseEvent]] = defaultdict(list)
    for event in JobEvent.objects.order_by("id"):
        found[event.seq].append(event)
    return found


def check_histories(found: dict[int, list[LeaseEvent]]) -> None:
    """Replay every job: it has one holder at most, and only the holder ends, releases or extends the lease."""
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
        assert [KIND[event.kind] for event in events].count("acked") <= 1


def check_everything() -> dict[int, list[LeaseEvent]]:
    found = histories()
    check_histories(found)
    assert differences() == []
    return found


def crowd(count: int, work: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(count) as threads:
        for done in [threads.submit(work, number) for number in range(count)]:
            done.result()


@pytest.mark.parametrize("tags", [None, ["red", "blue"]], ids=str)
def test_producers_and_claimers_of_several_queues_with_retries(tags: list[str] | None) -> None:
    """And two that raise floors: no job ends up below one."""
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

    def kill(victims: list[int]) -> None:
        dice = random.Random(99)
        with own_connection() as executor:
            while not lost or (jobs_left(executor) and len(lost) < 40):
                victim = pids.get(dice.choice(victims), 0)
                executor.connection.execute("SELECT pg_terminate_backend(%s::int)", [victim])

    with ThreadPoolExecutor(5) as threads:
        working = [threads.submit(work, number) for number in range(4)]
        killing = threads.submit(kill, [0, 1, 2, 3])
        for done in [*working, killing]:
            done.result()
    found = check_everything()
    assert set(found) == set(numbers)
    for events in found.values():
        assert [KIND[event.kind] for event in events].count("acked") == 1


@pytest.mark.slow
def test_leases_that_expire_under_slow_workers(clock) -> None:
    """Delivery is at least once: a late worker is refused, somebody else does the job again, and it ends once."""
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
    found = check_everything()
    assert set(found) == set(numbers)
    for events in found.values():
        assert [KIND[event.kind] for event in events].count("acked") == 1
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
        settled = run(
            dice.choice(
                [
                    engine.finish([engine.Ending(seq, known)], node),
                    engine.finish([engine.Ending(seq, known, failure=Failure("E"))], node),
                    engine.release([Release(seq, known, dice.choice([0, 1_000]))], node, unstarted=dice.random() < 0.3),
                    engine.extend([seq], node, 5_000, tokens=None if known is None else [known]),
                ]
            )
        )
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


def differences() -> list[Any]:
    with own_connection() as executor, snapshot(executor.connection) as reader:
        return reader.run(verify()).differences
