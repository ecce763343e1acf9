"""Claiming: order, leases, tokens, bounds, several queues, tags, pauses, projects."""

from datetime import timedelta

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob, make_lease_id, parse_lease_id
from django_leasequeue.engine.limits import MAX_BATCH, MAX_LEASE_MS, MIN_LEASE_MS
from django_leasequeue.exceptions import NotAQueue, QueueNotFound
from django_leasequeue.models import Claim, JobState, LiveJob, Queue

from .helpers import NODE, OTHER, claim, enqueue, kinds, make, one, put, seqs, state

pytestmark = pytest.mark.usefixtures("queue")


def test_jobs_come_once_in_the_order_of_enqueue() -> None:
    assert claim(0) == claim(10) == []
    assert not Claim.objects.exists()
    numbers = put(5)
    assert claim(0) == []
    assert seqs(claim(3)) == numbers[:3]
    assert seqs(claim(3, node=OTHER)) == numbers[3:]
    assert claim(3) == []


def test_a_job_carries_what_was_enqueued(clock) -> None:
    (made,) = enqueue(
        NewJob(
            data={"a": [1, None, 'ü\\ "quoted" \t\n']}, body=b"\x00\xff raw", key="k-1", name="app.task", tag="blue",
            meta={"trace": "z9"}, reply_to="reply_x", max_deliveries=7,
        ),
        origin="producer-1",
    )  # fmt: skip
    job = one(lease_ms=5_000)
    assert (job.seq, job.queue, job.key, job.name, job.tag) == (made.seq, "work", "k-1", "app.task", "blue")
    assert (job.data, job.body) == ({"a": [1, None, 'ü\\ "quoted" \t\n']}, b"\x00\xff raw")
    assert (job.meta, job.reply_to, job.max_deliveries) == ({"trace": "z9"}, "reply_x", 7)
    assert (job.deliveries, job.errors, job.progress) == (1, [], None)
    assert job.created_at == job.claimed_at == job.first_claimed_at == clock.now
    assert job.deadline == clock.now + timedelta(seconds=5)
    assert LiveJob.objects.get(pk=job.seq).origin == "producer-1"
    (bare,) = enqueue(NewJob())
    job = one()
    assert (job.seq, job.data, job.meta, job.body, job.key) == (bare.seq, None, None, None, None)


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


@pytest.mark.parametrize(
    ("asked", "given"), [(1, MIN_LEASE_MS), (-5, MIN_LEASE_MS), (60_000, 60_000), (10**15, MAX_LEASE_MS)]
)
def test_the_lease_is_clamped(clock, asked: int, given: int) -> None:
    put()
    assert one(lease_ms=asked).deadline - clock.now == timedelta(milliseconds=given)


def test_a_thousand_at_most() -> None:
    put(MAX_BATCH + 1)
    assert len(claim(MAX_BATCH + 1)) == MAX_BATCH
    assert len(claim(MAX_BATCH + 1)) == 1


class TestExpiry:
    def test_is_strict_to_the_microsecond(self, queue: int, clock) -> None:
        put()
        job = one()
        clock.now = job.deadline
        assert claim(node=OTHER) == engine.run(engine.sweep([queue])) == []
        clock.advance(microseconds=1)
        again = one(node=OTHER)
        assert again.seq == job.seq

    def test_gives_the_next_delivery_a_new_token(self, clock) -> None:
        put()
        job = one()
        clock.advance(seconds=31)
        again = one(node=OTHER)
        assert (again.seq, again.deliveries) == (job.seq, 2)
        assert again.token != job.token
        assert (again.first_claimed_at, again.claimed_at) == (job.claimed_at, clock.now)
        assert [error["type"] for error in again.errors] == ["LEASE_EXPIRED"]
        assert (again.errors[0]["node"], kinds(job.seq)) == (NODE, ["enqueued", "claimed", "expired", "claimed"])

    def test_expired_jobs_come_before_never_delivered_ones(self, clock) -> None:
        numbers = put(6)
        claim(2)
        clock.advance(seconds=31)
        make("work", project="acme")
        again = claim(4, node=OTHER)
        assert (claim(project="acme"), seqs(again)) == ([], numbers[:4])
        assert list(Claim.objects.values_list("token", flat=True)) == [again[0].token]

    def test_an_expired_job_is_found_behind_many_claims_that_are_over(self, clock) -> None:
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
        put()
        put(queue="second", priority=9)
        first, second = claim(2, ["work", "second"])
        assert first.token != second.token
        assert (first.queue, second.queue) == ("work", "second")
        assert second.deadline - first.deadline == timedelta(seconds=30)

    def test_a_queue_named_twice_counts_once(self) -> None:
        numbers = put(4)
        jobs = claim(10, ["work", "work"])
        assert (seqs(jobs), Claim.objects.count(), sorted(Claim.objects.get().seqs)) == (numbers, 1, numbers)


class TestTags:
    def test_one_or_several_tags_in_the_queues_order(self, clock) -> None:
        red, green, blue = (put(2, tag=tag) for tag in ("red", "green", "blue"))
        (urgent,) = enqueue(NewJob(tag="blue", priority=9))
        (untagged,) = put(1)
        assert seqs(claim(10, tag="green")) == green
        assert seqs(claim(10, tags=["blue", "red"])) == [urgent.seq, *red, *blue]
        clock.advance(seconds=31)
        assert seqs(claim(2, tags=["red", "green", "green"], node=OTHER)) == red
        assert seqs(claim(9, tags=["red", "green", "absent"], node=OTHER)) == green
        assert seqs(claim(9, tag="blue", node=OTHER)) == [urgent.seq, *blue]
        assert seqs(claim(9)) == [untagged]


class TestWhatCannotBeClaimed:
    def test_a_missing_queue(self) -> None:
        with pytest.raises(QueueNotFound) as caught:
            claim(1, "nowhere")
        assert caught.value.queue == "nowhere"
        assert not Queue.objects.filter(name="nowhere").exists()

    def test_a_log(self) -> None:
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
    mine = claim(10, project="acme")
    assert len(mine) == 3
    assert claim(10) == []
    numbers = seqs(mine)
    for call in (engine.ack, engine.nack, engine.extend):
        settled = engine.run(call(numbers, NODE, project="umbrella"))
        assert settled.skipped == numbers
        assert {outcome.value for outcome in settled.outcomes.values()} == {"not_found"}
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
