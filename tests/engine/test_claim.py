"""Claiming: order, leases, tokens, bounds, several queues, tags, pauses, projects; what a sweep takes at once."""

from datetime import timedelta

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import make_lease_id, parse_lease_id
from django_leasequeue.engine.leases import sweep
from django_leasequeue.engine.leases.floor import ClaimCursor
from django_leasequeue.engine.limits import MAX_BATCH, MAX_LEASE_MS, MIN_LEASE_MS
from django_leasequeue.engine.topics import messages
from django_leasequeue.exceptions import NotAQueue, QueueNotFound
from django_leasequeue.models import Claim, JobState, LiveJob, Queue
from tests.engine.helpers import NODE, OTHER, claim, kinds, make, one, outcomes, put, seqs, state

pytestmark = pytest.mark.usefixtures("queue")


def test_jobs_come_once_in_the_order_of_enqueue_a_thousand_at_most() -> None:
    assert claim(0) == claim(10) == []
    assert not Claim.objects.exists()
    numbers = put(MAX_BATCH + 6)
    assert claim(0) == []
    assert seqs(claim(3)) == numbers[:3]
    assert seqs(claim(MAX_BATCH + 1, node=OTHER)) == numbers[3 : MAX_BATCH + 3]
    assert seqs(claim(MAX_BATCH + 1)) == numbers[MAX_BATCH + 3 :]
    assert claim(3) == []


def test_the_token_names_the_claim_and_the_job(clock) -> None:
    numbers = put(2)
    first, second = claim(2, connection="stream-7")
    assert first.token == second.token
    assert first.lease_id != second.lease_id
    assert parse_lease_id(first.lease_id) == (first.token, first.seq)
    assert first.lease_id == make_lease_id(first.token, first.seq)
    assert int(first.lease_id.removeprefix("lease_"), 16) > 0
    row = Claim.objects.get()
    assert (row.token, row.node, row.connection, row.ttl_ms) == (first.token, NODE, "stream-7", 30_000)
    assert (sorted(row.seqs), row.deadline) == (numbers, first.deadline)
    assert first.deadline == clock.now + timedelta(seconds=30)


@pytest.mark.parametrize(("asked", "given"), [
    (1, MIN_LEASE_MS), (-5, MIN_LEASE_MS), (60_000, 60_000), (10**15, MAX_LEASE_MS),
])  # fmt: skip
def test_the_lease_is_clamped_and_so_is_its_extension(clock, asked: int, given: int) -> None:
    put()
    job = one(lease_ms=asked)
    assert job.deadline - clock.now == timedelta(milliseconds=given)
    clock.advance(milliseconds=50)
    settled = engine.run(engine.extend([job.seq], NODE, asked))
    assert settled.deadlines == {job.seq: clock.now + timedelta(milliseconds=given)}


@pytest.mark.parametrize("cursor", [None, ClaimCursor(), ClaimCursor(eager=True)], ids=["none", "one", "eager"])
def test_most_bounds_the_jobs_of_a_queue_and_leaves_the_room_to_others(clock, cursor: ClaimCursor | None) -> None:
    queues = ["heavy", "light"]
    heavy, _ = [(make(name), put(6, name))[1] for name in queues]
    for size, most, found in ((4, 2, [2, 2]), (4, 1, [1, 3]), (4, 0, [0, 1]), (4, 9, [3, 0])):
        jobs = claim(size, queues, most={"heavy": most}, cursor=cursor)
        assert [[job.queue for job in jobs].count(name) for name in queues] == found
    clock.advance(minutes=10)
    again = claim(9, "heavy", most={"heavy": 4}, cursor=cursor)
    assert seqs(again) == heavy[:4], "those whose leases have expired count as well"


class TestExpiry:
    def test_is_strict_to_the_microsecond_and_gives_the_next_delivery_a_new_token(self, queue: int, clock) -> None:
        put()
        job = one()
        clock.now = job.deadline
        assert claim(node=OTHER) == engine.run(engine.sweep([queue])) == []
        clock.advance(microseconds=1)
        again = one(node=OTHER)
        assert (again.seq, again.deliveries) == (job.seq, 2)
        assert again.token != job.token
        assert (again.first_claimed_at, again.claimed_at) == (job.claimed_at, clock.now)
        assert [error["type"] for error in again.errors] == ["LEASE_EXPIRED"]
        assert (again.errors[0]["node"], kinds(job.seq)) == (NODE, ["enqueued", "claimed", "expired", "claimed"])

    def test_an_expired_job_comes_first_though_many_claims_that_are_over_hide_it(self, clock) -> None:
        """Rows of claims whose jobs were all acknowledged stay until their deadline; they must not hide a lost one."""
        for _ in range(450):
            put()
            engine.run(engine.ack([one().seq], NODE))
        lost = put()[0]
        one(node="dies", lease_ms=31_000)
        fresh = put()[0]
        clock.advance(seconds=40)
        assert seqs(claim(2, node=OTHER)) == [lost, fresh]


class TestSeveralQueues:
    def test_are_served_in_the_order_given(self) -> None:
        make("second")
        late = put(2, "second")
        early = put(2)
        assert seqs(claim(3, ["work", "second"])) == [*early, late[0]]
        put(2)
        assert seqs(claim(1, ["nowhere", "second", "work"])) == [late[1]]

    def test_each_queue_has_its_own_claim_and_lease_and_priorities(self, clock) -> None:
        make("second", lease_ms=60_000)
        put(2)
        put(queue="second", priority=9)
        first, again, second = claim(3, ["work", "second", "work"])
        assert (first.token, Claim.objects.count()) == (again.token, 2), "a queue named twice counts once"
        assert first.token != second.token
        assert (first.queue, second.queue) == ("work", "second")
        assert second.deadline - first.deadline == timedelta(seconds=30)


def test_one_or_several_tags_in_the_queues_order(clock) -> None:
    red, green, blue = (put(2, tag=tag) for tag in ("red", "green", "blue"))
    (urgent,) = put(tag="blue", priority=9)
    untagged = put(1)
    assert seqs(claim(10, tag="green")) == green
    assert seqs(claim(10, tags=["blue", "red"])) == [urgent, *red, *blue]
    clock.advance(seconds=31)
    assert seqs(claim(2, tags=["red", "green", "green"], node=OTHER)) == red
    assert seqs(claim(9, tags=["red", "green", "absent"], node=OTHER)) == green
    assert seqs(claim(9, tag="blue", node=OTHER)) == [urgent, *blue]
    assert seqs(claim(9)) == untagged


class TestWhatCannotBeClaimed:
    def test_a_missing_queue_and_a_log(self) -> None:
        with pytest.raises(QueueNotFound) as caught:
            claim(1, "nowhere")
        assert caught.value.queue == "nowhere"
        assert not Queue.objects.filter(name="nowhere").exists()
        make("records", type="log")
        put(queue="records")
        with pytest.raises(NotAQueue):
            claim(1, "records")
        assert claim(1, "records", strict=False) == claim(1, "nowhere", strict=False) == []

    def test_a_paused_queue_until_it_is_resumed(self, clock) -> None:
        make("second")
        numbers, other = put(3), put(queue="second")
        done, expiring = claim(2)
        engine.run(engine.pause("work"))
        put()
        assert seqs(claim(10, ["work", "second"])) == other
        assert engine.run(engine.ack([done.seq], NODE)).ok == [done.seq]
        clock.advance(seconds=31)
        assert claim(5) == []
        engine.run(engine.pause("work", paused=False))
        assert seqs(claim(2)) == [expiring.seq, numbers[2]]


def test_projects_never_see_each_other() -> None:
    for project in ("acme", "umbrella"):
        make("work", project=project)
        put(3, project=project)
    numbers = seqs(claim(10, project="acme"))
    assert (len(numbers), claim(10)) == (3, [])
    for call in (engine.ack, engine.nack, engine.extend):
        assert outcomes(engine.run(call(numbers, NODE, project="umbrella"))) == ["not_found"] * 3
    assert engine.run(engine.cancel("work", seqs=numbers, project="umbrella")) == []
    assert {state(seq) for seq in numbers} == {"leased"}
    assert engine.run(engine.ack(numbers, NODE, project="acme")).ok == numbers


def test_one_claimer_does_not_wait_until_all_that_is_due_is_ready(clock, queue: int) -> None:
    """A crowd of jobs scheduled for one moment: each claim makes a part of them ready and gets its batch."""
    total = 11_500
    for _ in range(23):
        put(500, delay_ms=1_000)
    clock.advance(seconds=1)
    first = claim(3)
    assert (len(first), LiveJob.objects.filter(state=JobState.DELAYED).count()) == (3, total - 10_000)
    assert len(claim(1_000)) == 1_000
    assert not LiveJob.objects.filter(state=JobState.DELAYED).exists()


def test_one_statement_stops_after_so_many_jobs(queue: int, clock, monkeypatch: pytest.MonkeyPatch) -> None:
    put(50)
    claims = []
    for _ in range(5):
        claims.append(seqs(claim(10)))
        clock.advance(seconds=1)
    clock.advance(seconds=60)
    monkeypatch.setattr(sweep, "CLAIMED_JOBS", 15)
    swept = engine.run(engine.sweep([queue], rounds=1))
    assert sorted(seqs(swept)) == claims[0] + claims[1], "whole claims, the oldest"
    monkeypatch.setattr(sweep, "CLAIMED_JOBS", 1)
    swept += engine.run(engine.sweep([queue]))
    assert sorted(seqs(swept)) == sorted(seq for taken in claims for seq in taken), "the rest in rounds"
    assert not Claim.objects.exists()


def test_a_renewed_claim_does_not_hide_its_job_that_has_run_out(queue: int, clock) -> None:
    put(2)
    first, second = claim(2)
    engine.run(engine.extend([first.seq], NODE, 5_000, tokens=[first.token]))
    clock.advance(seconds=6)
    assert engine.run(messages.renew_claim(queue, second.token, 600_000)) == 1
    assert seqs(engine.run(engine.sweep([queue]))) == [first.seq]
    assert state(second.seq) == "leased"
    clock.advance(seconds=599)
    assert one().seq == first.seq
    clock.advance(seconds=2)
    assert seqs(engine.run(engine.sweep([queue]))) == [second.seq]
