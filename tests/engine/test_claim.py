"""Claiming: order, leases, tokens, bounds, several queues, tags, pauses, projects."""

from datetime import timedelta

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob, make_lease_id, parse_lease_id
from django_leasequeue.engine.limits import MAX_BATCH, MAX_LEASE_MS, MIN_LEASE_MS
from django_leasequeue.exceptions import InvalidOption, NotAQueue, QueueNotFound
from django_leasequeue.models import Claim, JobState, LiveJob, Queue, QueueRank

from .helpers import NODE, OTHER, claim, enqueue, kinds, make, one, put, seqs, state

pytestmark = pytest.mark.usefixtures("queue")


def test_an_empty_queue_gives_an_empty_list() -> None:
    assert claim() == []


def test_jobs_come_in_the_order_of_enqueue() -> None:
    numbers = put(5)
    assert seqs(claim(3)) == numbers[:3]
    assert seqs(claim(3)) == numbers[3:]
    assert claim(3) == []


def test_a_job_carries_what_was_enqueued(clock) -> None:
    (made,) = enqueue(
        NewJob(
            data={"a": [1, None, 'ü\\ "quoted" \t\n']},
            body=b"\x00\xff raw",
            key="k-1",
            name="app.task",
            tag="blue",
            meta={"trace": "z9"},
            reply_to="reply_x",
            max_deliveries=7,
        ),
        origin="producer-1",
    )
    job = one(lease_ms=5_000)
    assert (job.seq, job.queue, job.key, job.name, job.tag) == (made.seq, "work", "k-1", "app.task", "blue")
    assert job.data == {"a": [1, None, 'ü\\ "quoted" \t\n']}
    assert job.body == b"\x00\xff raw"
    assert (job.meta, job.reply_to, job.max_deliveries) == ({"trace": "z9"}, "reply_x", 7)
    assert (job.deliveries, job.errors, job.progress) == (1, [], None)
    assert job.created_at == job.claimed_at == job.first_claimed_at == clock.now
    assert job.deadline == clock.now + timedelta(seconds=5)
    assert LiveJob.objects.get(pk=job.seq).origin == "producer-1"


def test_a_job_without_payload_has_none() -> None:
    put_empty = enqueue(NewJob())[0].seq
    job = one()
    assert (job.seq, job.data, job.meta, job.body, job.key) == (put_empty, None, None, None, None)


def test_the_token_names_the_claim_and_the_job() -> None:
    put(2)
    first, second = claim(2)
    assert first.token == second.token
    assert first.lease_id != second.lease_id
    assert parse_lease_id(first.lease_id) == (first.token, first.seq)
    assert first.lease_id == make_lease_id(first.token, first.seq)
    assert first.lease_id.startswith("lease_")
    assert int(first.lease_id.removeprefix("lease_"), 16) > 0


def test_one_claim_row_holds_the_batch(clock) -> None:
    numbers = put(3)
    job = claim(3, connection="stream-7")[0]
    row = Claim.objects.get()
    assert (row.token, row.node, row.connection, row.ttl_ms) == (job.token, NODE, "stream-7", 30_000)
    assert sorted(row.seqs) == numbers
    assert row.deadline == job.deadline == clock.now + timedelta(seconds=30)


def test_a_claim_that_finds_nothing_leaves_no_row() -> None:
    claim(10)
    assert not Claim.objects.exists()


@pytest.mark.parametrize(
    ("asked", "given"), [(1, MIN_LEASE_MS), (-5, MIN_LEASE_MS), (60_000, 60_000), (10**15, MAX_LEASE_MS)]
)
def test_the_lease_is_clamped(clock, asked: int, given: int) -> None:
    put()
    assert one(lease_ms=asked).deadline - clock.now == timedelta(milliseconds=given)


def test_the_lease_of_the_queue_is_the_default(clock) -> None:
    make("slow", lease_ms=120_000)
    put(queue="slow")
    assert one("slow").deadline - clock.now == timedelta(seconds=120)


def test_a_thousand_at_most() -> None:
    put(MAX_BATCH + 1)
    assert len(claim(MAX_BATCH + 1)) == MAX_BATCH
    assert len(claim(MAX_BATCH + 1)) == 1


def test_zero_claims_nothing() -> None:
    put()
    assert claim(0) == []
    assert len(claim(1)) == 1


def test_leased_jobs_are_not_given_again() -> None:
    put(3)
    first = claim(2)
    assert {job.seq for job in claim(10, node=OTHER)}.isdisjoint(seqs(first))


class TestExpiry:
    def test_is_strict_to_the_microsecond(self, clock) -> None:
        put()
        job = one()
        clock.now = job.deadline
        assert claim(node=OTHER) == []
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
        assert again.first_claimed_at == job.claimed_at
        assert again.claimed_at == clock.now
        assert [error["type"] for error in again.errors] == ["LEASE_EXPIRED"]
        assert again.errors[0]["node"] == NODE
        assert kinds(job.seq) == ["enqueued", "claimed", "expired", "claimed"]

    def test_expired_jobs_come_before_never_delivered_ones(self, clock) -> None:
        numbers = put(6)
        claim(2)
        clock.advance(seconds=31)
        assert seqs(claim(4, node=OTHER)) == numbers[:4]

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

    def test_a_batch_expires_as_a_whole_and_the_claim_row_goes(self, clock) -> None:
        numbers = put(5)
        claim(5)
        clock.advance(seconds=31)
        again = claim(5, node=OTHER)
        assert seqs(again) == numbers
        assert list(Claim.objects.values_list("token", flat=True)) == [again[0].token]

    def test_the_queue_of_another_project_is_not_swept_into_this_one(self, clock) -> None:
        make("work", project="acme")
        put(project="acme")
        claim(project="acme")
        clock.advance(seconds=31)
        assert claim() == []
        assert len(claim(project="acme")) == 1


class TestSeveralQueues:
    def test_are_served_in_the_order_given(self) -> None:
        make("second")
        late = put(2, "second")
        early = put(2)
        assert seqs(claim(3, ["work", "second"])) == [*early, late[0]]
        put(2)
        assert seqs(claim(1, ["second", "work"])) == [late[1]]

    def test_each_queue_has_its_own_claim_and_lease(self, clock) -> None:
        make("second", lease_ms=60_000)
        put()
        put(queue="second")
        first, second = claim(2, ["work", "second"])
        assert first.token != second.token
        assert (first.queue, second.queue) == ("work", "second")
        assert second.deadline - first.deadline == timedelta(seconds=30)

    def test_a_missing_queue_among_several_is_passed_over(self) -> None:
        numbers = put()
        assert seqs(claim(1, ["nowhere", "work"])) == numbers

    def test_a_queue_named_twice_counts_once(self) -> None:
        numbers = put(4)
        jobs = claim(10, ["work", "work"])
        assert seqs(jobs) == numbers
        assert Claim.objects.count() == 1
        assert sorted(Claim.objects.get().seqs) == numbers

    def test_priorities_rule_inside_one_queue_only(self) -> None:
        make("second")
        (low,) = enqueue(NewJob(priority=0))
        (high,) = enqueue(NewJob(priority=9), queue="second")
        assert seqs(claim(2, ["work", "second"])) == [low.seq, high.seq]

    def test_at_most_a_hundred(self) -> None:
        with pytest.raises(InvalidOption, match="1 to 100"):
            claim(1, [f"q{number}" for number in range(101)])
        with pytest.raises(InvalidOption, match="1 to 100"):
            claim(1, [])


class TestTags:
    def test_only_jobs_with_the_tag(self) -> None:
        put(2, tag="red")
        blue = put(2, tag="blue")
        put(1)
        assert seqs(claim(10, tag="blue")) == blue
        assert len(claim(10)) == 3

    def test_an_expired_job_with_the_tag_comes_again(self, clock) -> None:
        put(1, tag="red")
        blue = put(2, tag="blue")
        claim(1, tag="blue")
        clock.advance(seconds=31)
        assert seqs(claim(5, tag="blue", node=OTHER)) == blue

    def test_one_of_several_tags_in_the_queues_order(self, clock) -> None:
        red, green, blue = (put(2, tag=tag) for tag in ("red", "green", "blue"))
        (urgent,) = enqueue(NewJob(tag="blue", priority=9))
        put(1)
        assert seqs(claim(10, tags=["blue", "red"])) == [urgent.seq, *red, *blue]
        clock.advance(seconds=31)
        assert seqs(claim(2, tags=["red", "green", "green"], node=OTHER)) == red
        assert seqs(claim(9, tags=["red", "green", "absent"], node=OTHER)) == green

    def test_a_claim_by_tags_is_filled_from_the_tag_that_has_jobs(self) -> None:
        put(1, tag="red")
        put(7, tag="blue")
        assert [job.tag for job in claim(5, tags=["red", "blue"])] == ["red", *["blue"] * 4]

    def test_what_is_asked_for_twice_or_too_much(self) -> None:
        put(1, tag="red")
        assert seqs(claim(1, tags=[f"tag-{number}" for number in range(20)])) == []
        with pytest.raises(InvalidOption, match="1 to 20 tags"):
            claim(1, tags=[f"tag-{number}" for number in range(21)])
        with pytest.raises(InvalidOption, match="1 to 20 tags"):
            claim(1, tags=[])
        with pytest.raises(InvalidOption, match="not both"):
            claim(1, tag="red", tags=["blue"])


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

    def test_neither_when_not_strict(self) -> None:
        make("records", type="log")
        put(queue="records")
        assert claim(1, "records", strict=False) == []
        assert claim(1, "nowhere", strict=False) == []

    def test_a_paused_queue_until_it_is_resumed(self) -> None:
        numbers = put(2)
        leased = one()
        engine.run(engine.pause("work"))
        put()
        assert claim(10) == []
        assert engine.run(engine.ack([leased.seq], NODE)).ok == [leased.seq]
        engine.run(engine.pause("work", paused=False))
        assert seqs(claim(1)) == numbers[1:]

    def test_a_paused_queue_among_others(self) -> None:
        make("second")
        put()
        other = put(queue="second")
        engine.run(engine.pause("work"))
        assert seqs(claim(5, ["work", "second"])) == other

    def test_expired_leases_of_a_paused_queue_come_back_when_it_goes_on(self, clock) -> None:
        put()
        job = one()
        engine.run(engine.pause("work"))
        clock.advance(seconds=31)
        assert claim(5) == []
        engine.run(engine.pause("work", paused=False))
        assert seqs(claim(5)) == [job.seq]


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


def test_a_queue_knows_the_ranks_in_use(queue: int) -> None:
    enqueue(NewJob(priority=3), NewJob(priority=9), NewJob(priority=3), NewJob())
    ranks = QueueRank.objects.filter(queue_id=queue).values_list("rank", flat=True)
    assert set(ranks) == {-9, -3, 0}


def test_one_claimer_does_not_wait_until_all_that_is_due_is_ready(clock, queue: int) -> None:
    """A crowd of jobs scheduled for one moment: each claim makes a part of them ready and gets its batch."""
    total = 11_500
    for _ in range(23):
        put(500, delay_ms=1_000)
    clock.advance(seconds=1)
    first = claim(3)
    assert len(first) == 3
    assert LiveJob.objects.filter(state=JobState.DELAYED).count() == total - 10_000
    assert len(claim(1_000)) == 1_000
    assert not LiveJob.objects.filter(state=JobState.DELAYED).exists()
