"""Turns that are taken in another order than they were made: nothing is lost by it."""

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Release
from django_leasequeue.models import FlowTurn, Member
from tests.engine.flow import differences, limited
from tests.engine.graphs import node, start, status
from tests.engine.helpers import NODE, claim, make, open_transaction, own_connection
from tests.support.rows import rows

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("waiting", [1, 2])
def test_a_job_that_was_cancelled_before_its_claimer_knew_keeps_no_slot(waiting: int) -> None:
    make()
    first, *cancelled, last = limited(["x"] * (waiting + 2))
    (running,) = claim(10)
    assert running.seq == first
    # While one claimer makes the members, another one takes the turn of the cancel, and finds no member yet.
    engine.run(engine.cancel("work", seqs=cancelled))
    rows(FlowTurn).delete()
    engine.run(engine.finish([Ending(running.seq, running.token)], NODE))
    (running,) = (job for _ in range(4) for job in claim(10))
    assert (running.seq, differences()) == (last, [])
    engine.run(engine.finish([Ending(running.seq, running.token)], NODE))
    assert claim(10) == []
    assert not Member.objects.exists()


@pytest.mark.django_db(transaction=True)
class TestOnConnectionsOfTheirOwn:
    def test_order_holds_although_a_claimer_is_slow(self) -> None:
        """A claimer that has taken the first job's turn, and stands still, is waited for by later jobs of the queue."""
        queue_id = make()
        (first,) = limited(["x"])
        with open_transaction() as slow:
            slow.connection.execute("SELECT 1")
            assert slow.run(engine.advance([queue_id])) == 1
            (second,) = limited(["x"])
            assert claim(10) == []
            slow.connection.commit()
        (job,) = claim(10)
        assert job.seq == first
        engine.run(engine.finish([Ending(job.seq, job.token)], NODE))
        assert [job.seq for job in claim(10)] == [second]

    def test_a_cancel_and_an_end_in_two_queues_do_not_wait_for_each_other(self) -> None:
        make("one")
        make("two")
        uid = start(node("a", queue="one"), node("b", queue="two"))
        (b,) = claim(1, queue="two")
        (a,) = claim(1, queue="one")
        while a.token < b.token:
            engine.run(engine.release([Release(a.seq, a.token, 0)], NODE))
            (a,) = claim(1, queue="one")
        with open_transaction() as settler, own_connection() as other:
            other.connection.execute("SET lock_timeout = '60s'")
            settler.run(engine.finish([Ending(b.seq, b.token)], NODE))
            assert other.run(engine.cancel_workflow(uid)) == 0
            settler.run(engine.finish([Ending(a.seq, a.token)], NODE))
            settler.connection.commit()
        assert claim(10, queue=["one", "two"]) == []
        assert status(uid)[2:] == (2, 0, 0)
