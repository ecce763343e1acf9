"""A queue is read in order of its numbers, wherever its jobs stand and whatever was moved."""

import random
import time

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.topics import log, topics
from django_leasequeue.models import LiveJob, StoredJob

from .helpers import NODE, claim, enqueue, make, own_connection, put, seqs

pytestmark = pytest.mark.django_db(transaction=True)


def read_all(topic: str, size: int, **options: object) -> list[int]:
    """Read a topic page by page; every page moves on."""
    found: list[int] = []
    with own_connection() as reader:
        seals, after, end = log.Sealer(), 0, time.monotonic() + 300
        while True:
            page = reader.run(log.read(topic, after=after, size=size, seals=seals, **options))
            found += [record.seq for record in page.records]
            if not page.more and page.cursor >= page.head_seq:
                return found
            # A transaction of PostgreSQL's own (autovacuum's ANALYZE) may hold the end back for a moment.
            assert page.cursor > after or (not page.more and time.monotonic() < end)
            after = page.cursor


@pytest.mark.parametrize("size", [1, 3, 50])
def test_jobs_in_every_place(size: int) -> None:
    dice = random.Random(size)
    make("work", requeue="back", max_deliveries=3, exhaust_at="release", dead_letter="self", priority_max=2)
    make("other", requeue="back")
    for turn in range(12):
        enqueue(*(NewJob(data=n, priority=dice.randint(0, 2)) for n in range(dice.randint(1, 9))))
        enqueue(*(NewJob(data=n, delay_ms=60_000) for n in range(dice.randint(0, 3))))
        put(3, "other")
        jobs = claim(dice.randint(1, 8))
        engine.run(engine.nack([job.seq for job in jobs if dice.random() < 0.6], NODE))
        if turn % 3 == 0:
            engine.run(engine.ack([job.seq for job in jobs[:2]], NODE))
    assert {0, 1, 2, 3} == set(LiveJob.objects.filter(queue__name="work").values_list("state", flat=True))
    assert StoredJob.objects.filter(queue__name="work", position__isnull=False).count() > 5
    there = list(StoredJob.objects.filter(queue__name="work").order_by("seq").values_list("seq", flat=True))
    assert read_all("work", size) == there
    state = engine.run(topics.state("work"))
    assert (state.earliest_seq, state.count) == (there[0], len(there))
    assert state.head_seq >= there[-1]


@pytest.mark.slow
@pytest.mark.parametrize("size", [7, 1_000])
def test_more_delayed_and_dead_jobs_than_are_looked_at_by_their_time(size: int) -> None:
    make("work", max_deliveries=1, exhaust_at="release", dead_letter="self")
    make("other")
    enqueue(*(NewJob(data=n, delay_ms=60_000 - n) for n in range(1_100)))
    put(5)
    enqueue(*(NewJob(data=n, delay_ms=60_000) for n in range(50)), queue="other")
    dying = put(1_050)
    for _ in range(3):
        engine.run(engine.nack(seqs(claim(500)), NODE))
    put(5)
    there = list(StoredJob.objects.filter(queue__name="work").order_by("seq").values_list("seq", flat=True))
    assert LiveJob.objects.filter(seq__in=dying, state=3).count() == 1_050
    assert read_all("work", size) == there
    assert read_all("work", 100, skip_nodes=["nobody"]) == there


def test_a_page_of_many_that_were_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    make("work", requeue="back")
    numbers = put(300)
    engine.run(engine.nack(seqs(claim(150)), NODE))
    assert seqs(claim(1)) == numbers[150:151]
    assert read_all("work", 20) == numbers
    assert engine.run(topics.state("work")).head_seq >= numbers[-1]
    assert engine.run(topics.drop("work", before=numbers[100])) == 100
    assert read_all("work", 50) == numbers[100:]


def test_what_a_cap_takes_away_first_is_the_oldest_wherever_it_stands() -> None:
    make("work", requeue="back", cap_records=10, max_deliveries=1, dead_letter="self", exhaust_at="release")
    numbers = put(3)
    engine.run(engine.nack(seqs(claim(1)), NODE))
    claim(1)
    later = [enqueue(NewJob(data=1, delay_ms=60_000))[0].seq, *put(6)]
    assert read_all("work", 5) == [*numbers, *later]
    assert read_all("work", 5) == [*numbers, *later]
    fresh = put(2)
    assert read_all("work", 5) == [*numbers[2:], *later, *fresh]
    assert read_all("work", 50) == [*numbers[2:], *later, *fresh]
