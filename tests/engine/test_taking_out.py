"""Cancel, purge, delete: jobs that go without being done."""

from threading import Barrier

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.jobs import results
from django_leasequeue.models import Claim, JobState, LeaseEvent, LiveJob, Ready, StoredJob

from . import helpers
from .helpers import NODE, claim, counts, enqueue, kept_waiting, kinds, make, one, outcomes, put, seqs, state

pytestmark = pytest.mark.usefixtures("queue")


class TestCancel:
    def test_what_waits_by_number_and_by_key(self, clock) -> None:
        numbers = put(3)
        enqueue(NewJob(key="a"), NewJob(key="b"))
        scheduled = enqueue(NewJob(delay_ms=60_000))[0].seq
        make("other")
        assert engine.run(engine.nack([one().seq], NODE, delay_ms=60_000)).ok == numbers[:1]
        assert engine.run(engine.cancel("work")) == engine.run(engine.cancel("other", keys=["a"], seqs=numbers)) == []
        assert engine.run(engine.cancel("nowhere", seqs=numbers)) == []
        gone = engine.run(engine.cancel("work", keys=["b", "unknown"], seqs=[*numbers[:2], 10**12, scheduled]))
        assert sorted(gone) == [(numbers[0], None), (numbers[1], None), (scheduled - 1, "b"), (scheduled, None)]
        assert [job.key for job in claim(9)] == [None, "a"]
        event = helpers.last_event(numbers[1])
        assert (event.node, event.claim, event.occurred_at) == (None, None, clock.now)
        assert kinds(numbers[1]) == ["enqueued", "cancelled"]

    def test_what_is_started_finished_dead_or_a_record_stays(self) -> None:
        make("mortal", max_deliveries=1, exhaust_at="release", dead_letter="self")
        make("records", type="log")
        started, finished = put(2)
        claim(2)
        engine.run(engine.ack([finished], NODE))
        (dead,), (record,) = put(queue="mortal"), put(queue="records")
        engine.run(engine.nack([one("mortal").seq], NODE))
        for queue, numbers in (("work", [started, finished]), ("mortal", [dead]), ("records", [record])):
            assert engine.run(engine.cancel(queue, seqs=numbers)) == []
        assert (state(started), state(dead), state(record)) == ("leased", "dead", "record")


@pytest.mark.django_db(transaction=True)
def test_cancel_and_claim_at_once_never_both() -> None:
    make("work")
    rounds, start = 60, Barrier(2)
    numbers, taken, gone = put(rounds * 3), list[int](), list[int]()

    def work(thread: int) -> None:
        with helpers.own_connection() as own:
            for number in range(rounds):
                start.wait(60)
                if thread == 0:
                    taken.extend(seqs(own.run(engine.claim("work", NODE, 2))))
                    continue
                # One that the claim of this round wants, and one that it may want: in the first round one is left.
                wanted = numbers[number * 2 + 1 : number * 2 + 3]
                gone.extend(seq for seq, _ in own.run(engine.cancel("work", seqs=wanted)))

    helpers.crowd(2, work)
    assert (bool(taken), bool(gone), set(taken) & set(gone), len(set(taken))) == (True, True, set(), len(taken))
    for number in [*taken, *gone]:
        assert kinds(number) == ["enqueued", "claimed" if number in taken else "cancelled"]
    assert LiveJob.objects.filter(state=JobState.LEASED).count() == len(taken)
    assert LiveJob.objects.filter(state=JobState.READY).count() == rounds * 3 - len(taken) - len(gone)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("before", "meanwhile"), [
    ("", "join"), ("nack", "join"), ("", "claim"), ("claim", "nack"),
])  # fmt: skip
def test_cancel_takes_a_job_that_somebody_marks_or_moves_meanwhile(before: str, meanwhile: str) -> None:
    """A cancel that waits for who joins a job's end or moves it takes it, although its row lies elsewhere by then."""
    make("work")
    numbers = put(3 if meanwhile == "join" else 1)
    if before:
        one()
    if before == "nack":
        engine.run(engine.nack(numbers[:1], NODE))
    work = {"claim": engine.claim(["work"], NODE, 1), "nack": engine.nack(numbers, NODE)}
    work["join"] = results.join(numbers[0], "somebody")
    with helpers.open_transaction() as other:
        assert other.run(work[meanwhile])
        cancel = engine.cancel("work", seqs=numbers, running=meanwhile != "join")
        with kept_waiting(lambda own: own.run(cancel)) as cancelling:
            other.connection.commit()
    assert sorted(seq for seq, _ in cancelling.result()) == numbers
    for table in (Claim, Ready, StoredJob):
        assert not table.objects.exists()


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

    def test_by_state_and_a_purged_lease_is_not_found(self, clock) -> None:
        engine.run(engine.configure("work", max_deliveries=1, exhaust_at="release", dead_letter="self"))
        put(2)
        engine.run(engine.nack([one().seq], NODE))
        assert engine.run(engine.purge("work", states=["dead"])) == 1
        job = one()
        assert state(job.seq) == "leased"
        assert engine.run(engine.purge("work", states=["leased"])) == 1
        assert counts()["leased"] == 0
        assert outcomes(engine.run(engine.ack([job.seq], NODE))) == ["not_found"]
        clock.advance(seconds=31)
        assert claim() == []
        assert not Claim.objects.exists()

    def test_by_number_tag_and_prefix_which_is_no_pattern(self) -> None:
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
        put(1, tag="abc")
        for prefix in ("%", "_", "a%", "\\"):
            (number,) = put(1, tag=prefix + "x")
            assert engine.run(engine.purge("work", tag_prefix=prefix)) == 1
            assert state(number) is None
        assert StoredJob.objects.filter(tag="abc").exists()


def test_a_queue_is_deleted_with_its_leases_and_not_its_events_and_made_anew_it_is_another_one(clock) -> None:
    make("kept", max_deliveries=1, exhaust_at="release", dead_letter="self")
    make("kept", project="acme")
    put(10_000, "kept")  # more than one batch
    other = put(queue="kept", project="acme")
    engine.run(engine.nack([one("kept").seq], NODE))
    assert counts("kept")["dead_lettered"] == 1
    held = one("kept")
    events = set(LeaseEvent.objects.values_list("pk", flat=True))
    assert engine.run(engine.delete("kept")) is True
    assert StoredJob.objects.count() == 1
    assert events < set(LeaseEvent.objects.values_list("pk", flat=True))
    assert outcomes(engine.run(engine.ack([held.seq, held.seq + 1], NODE))) == ["not_found"] * 2
    assert seqs(claim(queue="kept", project="acme")) == other
    make("kept")
    assert counts("kept") == {**counts("kept"), "ready": 0, "leased": 0, "dead": 0, "dead_lettered": 0}
    clock.advance(seconds=31)
    assert claim(queue="kept") == []
    fresh = put(queue="kept")
    assert seqs(claim(queue="kept")) == fresh
    assert outcomes(engine.run(engine.ack([held.seq], NODE))) == ["not_found"]
