"""Delayed jobs that go to the back reach it in the order of their due times, whoever brings them there."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import LiveJob

from .helpers import NODE, claim, enqueue, make, open_transaction, own_connection, put, seqs


def shuffled(count: int) -> list[int]:
    """Delays in ms, no two alike, in another order than the jobs' numbers."""
    delays = [1_000 + number for number in range(count)]
    random.Random(14).shuffle(delays)
    return delays


@pytest.mark.django_db
class TestOneAtATime:
    def test_in_a_database_of_many_queues(self, clock: Clock) -> None:
        """The planner then joins jobs and queues by hashing the jobs, which turns their order round."""
        for number in range(80):
            make(f"work-{number}", requeue="back")
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE leasequeue_queue")
        delays = shuffled(60)
        enqueue(*[NewJob(data=delay, delay_ms=delay) for delay in delays], queue="work-7")
        (fresh,) = put(queue="work-7")
        clock.advance(seconds=2)
        jobs = claim(100, "work-7")
        assert (jobs[0].seq, [job.data for job in jobs[1:]]) == (fresh, sorted(delays))

    def test_within_each_priority(self, clock: Clock) -> None:
        make("work", preset="codeq")
        for priority, delay in ((0, 100), (9, 900), (9, 200), (0, 50)):
            enqueue(NewJob(data=(priority, delay), priority=priority, delay_ms=delay))
        clock.advance(seconds=1)
        assert [job.data for job in claim(5)] == [[9, 200], [9, 900], [0, 50], [0, 100]]


@pytest.mark.django_db(transaction=True)
class TestSeveralAtOnce:
    def test_four_who_promote_keep_the_order(self, clock: Clock) -> None:
        queue = make("work", requeue="back")
        delays = shuffled(8_000)
        for start in range(0, 8_000, 1_000):
            enqueue(*[NewJob(data=delay, delay_ms=delay) for delay in delays[start : start + 1_000]])
        clock.advance(seconds=10)

        def promote(_: int) -> None:
            with own_connection() as executor:
                while executor.connection.execute("SELECT 1 FROM leasequeue_delayed LIMIT 1").fetchone():
                    executor.run(engine.promote([queue]))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(promote, range(4)))
        assert list(LiveJob.objects.order_by("position").values_list("data", flat=True)) == sorted(delays)

    def test_a_transaction_that_has_promoted_keeps_nobody_waiting(self, clock: Clock) -> None:
        """It holds what it promoted and no more: others bring the rest meanwhile."""
        queue = make("work", requeue="back")
        put(1, delay_ms=1_000)
        clock.advance(seconds=1)
        with open_transaction() as slow, own_connection() as quick:
            assert slow.run(engine.promote([queue])) == 1
            (later,) = put(1, delay_ms=1_000)
            clock.advance(seconds=1)
            assert seqs(quick.run(engine.claim("work", NODE, 5))) == [later]
            slow.connection.commit()
        assert len(claim(5)) == 1
