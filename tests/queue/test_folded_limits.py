"""10,000 jobs under limits through buffers of several processes, which nack, forget and are killed."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from django_leasequeue import NewJob, Queue, engine
from django_leasequeue.engine.pool import connect
from django_leasequeue.engine.verify import snapshot, verify
from django_leasequeue.enums import EventKind
from django_leasequeue.models import LeaseEvent, Member
from django_leasequeue.tasks import Limit
from tests.queue.folding import QUEUE

JOBS, KEYS, PROCESSES, KILLS = 10_000, 400, 3, 12
#: Two of these keys run two at a time.
WIDE = frozenset({0, 1})
LIMITS = {1: Limit("one:{key}", concurrency=1), 2: Limit("two:{key}", concurrency=2)}


def most(key: int) -> int:
    return 2 if key in WIDE else 1


@contextmanager
def consumers(environment: dict[str, str], log: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("wb") as output:
            found.extend(consumer(environment, number, output) for number in range(PROCESSES))
            yield found
    finally:
        for process in found:
            process.kill()
            process.wait()


_numbers = itertools.count()


def consumer(environment: dict[str, str], number: int, output: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.queue.folding", f"folder{number}", str(next(_numbers))]
    return subprocess.Popen(command, env=environment, stderr=output)  # type: ignore[arg-type]


def crowds(keys: dict[int, int]) -> list[str]:
    """Walk the lease log: where more of a key were leased at once than may be."""
    held: dict[int, set[int]] = defaultdict(set)
    found = []
    for event in LeaseEvent.objects.order_by("occurred_at", "id"):
        for seq in event.seqs:
            key = keys[seq]
            if event.kind == EventKind.CLAIMED:
                held[key].add(seq)
                if len(held[key]) > most(key):
                    found.append(f"key {key}: jobs {sorted(held[key])} at {event.occurred_at}")
            elif event.kind in (EventKind.ACKED, EventKind.RELEASED, EventKind.EXPIRED):
                held[key].discard(seq)
    return found


@pytest.mark.slow  # 10,000 jobs: a minute, and more on a busy machine
@pytest.mark.release
@pytest.mark.chaos
@pytest.mark.django_db(transaction=True)
def test_no_two_of_a_key_are_leased_at_once(subprocess_env: dict[str, str], tmp_path: Path) -> None:
    engine.run(engine.create(QUEUE, max_deliveries=0, result_ttl_ms=0))
    queue, dice, keys = Queue(QUEUE), random.Random(1), {}
    for start in range(0, JOBS, 1_000):
        wanted = [dice.randrange(KEYS) for _ in range(start, start + 1_000)]
        receipts = queue.enqueue_many([NewJob({"key": key}, limit=LIMITS[most(key)]) for key in wanted])
        keys.update({receipt.seq: key for receipt, key in zip(receipts, wanted, strict=True)})
    log = tmp_path / "log"
    with consumers(subprocess_env, log) as processes, log.open("ab") as output:
        end, killed, left = time.monotonic() + 400, 0, JOBS
        while left and time.monotonic() < end:
            time.sleep(0.4)
            figures = engine.run(engine.counts(QUEUE))
            left = figures.ready + figures.delayed + figures.in_flight
            if killed < KILLS and left < JOBS * (1 - killed / KILLS):
                place = killed % PROCESSES
                os.kill(processes[place].pid, signal.SIGKILL)
                processes[place].wait()
                processes[place] = consumer(subprocess_env, place, output)
                killed += 1
    assert crowds(keys) == []
    assert (left, killed) == (0, KILLS), log.read_text()[-2_000:]
    ended = Counter(seq for event in LeaseEvent.objects.filter(kind=EventKind.ACKED) for seq in event.seqs)
    assert (len(ended), set(ended.values())) == (JOBS, {1})
    kinds = Counter(event.kind for event in LeaseEvent.objects.all())
    assert {EventKind.RELEASED, EventKind.EXPIRED, EventKind.EXTENDED} <= set(kinds)
    engine.run(engine.claim(QUEUE, "last", 10))  # takes the last turns
    assert not Member.objects.exists()
    with connect("default") as own, snapshot(own) as executor:
        assert executor.run(verify()).differences == []
