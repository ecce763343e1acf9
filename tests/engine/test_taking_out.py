"""Cancel, purge, delete: jobs that go without being done."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.jobs import results
from django_leasequeue.models import (
    Claim,
    JobState,
    LeaseEvent,
    LiveJob,
    Ready,
    StoredJob,
)

from . import helpers
from .helpers import NODE, claim, counts, enqueue, kept_waiting, kinds, make, one, outcomes, put, seqs, state

pytestmark = pytest.mark.usefixtures("queue")


class TestCancel:
    def test_by_number_and_by_key(self, clock) -> None:
        numbers = put(3)
        enqueue(NewJob(key="a"), NewJob(key="b"))
        make("other")
        assert engine.run(engine.cancel("work")) == engine.run(engine.cancel("other", keys=["a"], seqs=numbers)) == []
        assert engine.run(engine.cancel("nowhere", seqs=numbers)) == []
        gone = engine.run(engine.cancel("work", keys=["b", "unknown"], seqs=[numbers[1], 10**12]))
        assert sorted(gone, key=lambda pair: pair[0]) == [
            (numbers[1], None),
            (StoredJob.objects.latest("seq").pk + 1, "b"),
        ]
        assert [job.key for job in claim(9)] == [None, None, "a"]
        event = helpers.last_event(numbers[1])
        assert (event.node, event.claim, event.occurred_at) == (None, None, clock.now)
        assert kinds(numbers[1]) == ["enqueued", "cancelled"]

    def test_a_delayed_job_and_one_between_two_tries(self) -> None:
        scheduled = enqueue(NewJob(delay_ms=60_000))[0].seq
        tried = put()[0]
        engine.run(engine.nack([one().seq], NODE, delay_ms=60_000))
        gone = engine.run(engine.cancel("work", seqs=[scheduled, tried]))
        assert sorted(seq for seq, _ in gone) == [scheduled, tried]

    def test_what_is_started_finished_dead_or_a_record_stays(self) -> None:
        make("mortal", max_deliveries=1, exhaust_at="release", dead_letter="self")
        make("records", type="log")
        started, finished = put(2)
        claim(2)
        engine.run(engine.ack([finished], NODE))
        (dead,), (record,) = put(queue="mortal"), put(queue="records")
        engine.run(engine.nack([one("mortal").seq], NODE))
        assert engine.run(engine.cancel("work", seqs=[started, finished])) == []
        assert (
            engine.run(engine.cancel("mortal", seqs=[dead]))
            == engine.run(engine.cancel("records", seqs=[record]))
            == []
        )
        assert (state(started), state(dead), state(record)) == ("leased", "dead", "record")


@pytest.mark.django_db(transaction=True)
def test_cancel_and_claim_at_once_never_both() -> None:
    """Two real connections, many rounds: each job is either cancelled or claimed."""
    make("work")
    rounds = 60
    with helpers.own_connection() as claimer, helpers.own_connection() as canceller, ThreadPoolExecutor(2) as threads:
        start = Barrier(2)
        numbers = put(rounds * 3)

        def claims() -> list[int]:
            taken = []
            for _ in range(rounds):
                start.wait()
                taken += [job.seq for job in claimer.run(engine.claim("work", NODE, 2))]
            return taken

        def cancels() -> list[int]:
            gone = []
            for number in range(rounds):
                start.wait()
                # One that the claim of this round wants, and one that it may want: in the first round one is left.
                wanted = numbers[number * 2 + 1 : number * 2 + 3]
                gone += [seq for seq, _ in canceller.run(engine.cancel("work", seqs=wanted))]
            return gone

        taking, going = threads.submit(claims), threads.submit(cancels)
        taken, gone = taking.result(), going.result()
    assert taken
    assert gone
    assert not set(taken) & set(gone)
    assert len(set(taken)) == len(taken)
    for number in taken:
        assert kinds(number) == ["enqueued", "claimed"]
    for number in gone:
        assert kinds(number) == ["enqueued", "cancelled"]
    assert LiveJob.objects.filter(state=JobState.LEASED).count() == len(taken)
    assert LiveJob.objects.filter(state=JobState.READY).count() == rounds * 3 - len(taken) - len(gone)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("came_back", [False, True])
def test_cancel_takes_a_job_that_somebody_marks_meanwhile(came_back: bool) -> None:
    """A cancel that waits for who joins a job's end takes the job, although its row lies elsewhere by then."""
    make("work")
    numbers = put(3)
    if came_back:
        engine.run(engine.nack([one().seq], NODE))
    with helpers.open_transaction() as other:
        assert other.run(results.join(numbers[0], "somebody"))
        with kept_waiting(lambda own: own.run(engine.cancel("work", seqs=numbers))) as cancelling:
            other.connection.commit()
    assert sorted(seq for seq, _ in cancelling.result()) == numbers
    assert not Ready.objects.exists()
    assert not StoredJob.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("leased", [False, True], ids=["ready", "leased"])
def test_cancel_of_a_running_job_takes_one_that_a_claim_or_a_release_moves_meanwhile(leased: bool) -> None:
    make("work")
    (number,) = put(1)
    if leased:
        one()
    move = engine.nack([number], NODE) if leased else engine.claim(["work"], NODE, 1)
    with helpers.open_transaction() as other:
        other.run(move)
        with kept_waiting(lambda own: own.run(engine.cancel("work", seqs=[number], running=True))) as cancelling:
            other.connection.commit()
    assert [seq for seq, _ in cancelling.result()] == [number]
    assert not Claim.objects.exists()
    assert not Ready.objects.exists()
    assert not StoredJob.objects.exists()


class TestPurge:
    def test_what_waits_a_bounded_batch_at_a_time_oldest_first(self) -> None:
        make("work", project="acme")
        put(project="acme")
        leased, *numbers = put(26)
        one()
        assert [engine.run(engine.purge("work", size=10)) for _ in range(2)] == [10, 10]
        assert seqs(claim(9)) == numbers[20:]
        put(5)
        enqueue(NewJob(delay_ms=60_000))
        assert [engine.run(engine.purge("work", size=10)) for _ in range(2)] == [6, 0]
        assert state(leased) == "leased"
        assert len(claim(project="acme")) == 1

    def test_by_state(self) -> None:
        make("work2", max_deliveries=1, exhaust_at="release", dead_letter="self")
        put(2, "work2")
        engine.run(engine.nack([one("work2").seq], NODE))
        assert engine.run(engine.purge("work2", states=["dead"])) == 1
        assert state(one("work2").seq) == "leased"
        assert engine.run(engine.purge("work2", states=["leased"])) == 1
        assert counts("work2")["leased"] == 0

    def test_a_purged_lease_is_not_found(self, clock) -> None:
        put()
        job = one()
        engine.run(engine.purge("work", states=["leased"]))
        assert outcomes(engine.run(engine.ack([job.seq], NODE))) == ["not_found"]
        clock.advance(seconds=31)
        assert claim() == []
        assert not Claim.objects.exists()

    def test_by_number_and_tag(self) -> None:
        first, second = put(2, tag="build-1")
        put(2, tag="build-2")
        put(2, tag="other")
        put(2)
        assert engine.run(engine.purge("work", before=second)) == 1
        assert engine.run(engine.purge("work", tag="build-1")) == 1
        assert engine.run(engine.purge("work", tag_prefix="build-")) == 2
        assert engine.run(engine.purge("work", tag="build-1")) == 0
        assert (counts()["ready"], state(first), kinds(first)) == (4, None, ["enqueued", "cancelled"])
        assert helpers.last_event(first).detail == {"reason": "purged"}

    @pytest.mark.parametrize("prefix", ["%", "_", "a%", "\\"])
    def test_a_prefix_is_no_pattern(self, prefix: str) -> None:
        put(1, tag="abc")
        put(1, tag=prefix + "x")
        assert engine.run(engine.purge("work", tag_prefix=prefix)) == 1
        assert StoredJob.objects.get().tag == "abc"


class TestDelete:
    def test_with_its_leases_and_not_its_events(self) -> None:
        make("kept")
        make("kept", project="acme")
        put(10_000, "kept")  # more than one batch
        numbers, other = put(2, "kept"), put(queue="kept", project="acme")
        claim(1, "kept")
        events = LeaseEvent.objects.count()
        assert engine.run(engine.delete("kept")) is True
        assert (StoredJob.objects.count(), LeaseEvent.objects.count()) == (1, events)
        assert outcomes(engine.run(engine.ack(numbers, NODE))) == ["not_found"] * 2
        assert seqs(claim(queue="kept", project="acme")) == other

    def test_made_anew_it_is_another_one(self, clock) -> None:
        engine.run(engine.configure("work", max_deliveries=1, exhaust_at="release", dead_letter="self"))
        put(3)
        engine.run(engine.nack([one().seq], NODE))
        assert counts()["dead_lettered"] == 1
        held = one()
        engine.run(engine.delete("work"))
        make("work")
        assert counts() == {**counts(), "ready": 0, "leased": 0, "dead": 0, "dead_lettered": 0}
        clock.advance(seconds=31)
        assert claim() == []
        fresh = put()
        assert seqs(claim()) == fresh
        assert outcomes(engine.run(engine.ack([held.seq], NODE))) == ["not_found"]
