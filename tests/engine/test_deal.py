"""Dealing jobs to several claimers at once, in the engine."""

import pytest

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.leases.cohort import Claimer, deal, deal_cohort, join, leave, take
from django_leasequeue.engine.topics.topics import look
from django_leasequeue.models import Claim, ClaimWaiter, JobEvent, LiveJob
from tests.engine.helpers import claim, make, put, seqs

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("count", "sizes", "shares"), [
    (50, [10] * 10, [5] * 10), (20, [10] * 4, [5] * 4), (9, [2, 100], [2, 7]), (9, [100, 2], [7, 2]),
    (7, [3, 3, 3], [3, 2, 2]), (0, [3, 3], [0, 0]), (100, [1, 5, 1000], [1, 5, 94]), (10, [0, 4, 0, 4], [0, 4, 0, 4]),
    (3, [1] * 5, [1, 1, 1, 0, 0]), (12, [1, 2, 3, 4, 5], [1, 2, 3, 3, 3]), (9, [3, 3, 2], [3, 3, 2]),
    (1000, [1000, 1000, 1], [500, 499, 1]),
])  # fmt: skip
def test_even_shares(count: int, sizes: list[int], shares: list[int]) -> None:
    make("work", preset="topics")
    numbers = put(count)
    claimers = [Claimer(f"w{n}", size) for n, size in enumerate(sizes)]
    hands = [[numbers.index(job.seq) for job in jobs] for jobs in engine.run(deal("work", claimers))]
    assert [len(hand) for hand in hands] == shares
    assert sorted(position for hand in hands for position in hand) == list(range(min(count, sum(sizes))))
    assert all(hand == sorted(hand) for hand in hands)
    if sizes == [3, 3, 2]:
        assert hands == [[0, 3, 6], [1, 4, 7], [2, 5]], "round robin in order of arrival"


def test_a_deal_is_a_claim_for_each() -> None:
    make("work", preset="topics")
    put(4)
    first, second = engine.run(deal("work", [Claimer("w1", 2, 5_000, "channel:7"), Claimer("w2", 2)]))
    assert ({job.token for job in first}, Claim.objects.count()) == ({first[0].token}, 2)
    mine = Claim.objects.get(token=first[0].token)
    assert (mine.node, mine.ttl_ms, mine.connection, mine.seqs) == ("w1", 5_000, "channel:7", seqs(first))
    assert (first[0].deadline - first[0].claimed_at).total_seconds() == 5
    assert (second[0].deadline - second[0].claimed_at).total_seconds() == 30
    assert (LiveJob.objects.get(seq=second[0].seq).node, JobEvent.objects.filter(kind=2).count()) == ("w2", 4)
    assert engine.run(engine.ack(seqs(first), "w1", tokens=[first[0].token] * 2)).ok == seqs(first)


def test_expired_and_delayed_jobs_come_first(clock: Clock) -> None:
    make("work", preset="topics")
    numbers = put(6)
    jobs = claim(3)
    engine.run(engine.nack([jobs[2].seq], "worker-1", delay_ms=1_000))
    clock.advance(seconds=31)
    hands = engine.run(deal("work", [Claimer("w1", 2), Claimer("w2", 2)]))
    assert [seqs(hand) for hand in hands] == [[numbers[0], numbers[2]], [numbers[1], numbers[3]]]
    assert [job.deliveries for job in hands[0]] == [2, 2]


def test_poison_does_not_shrink_a_deal_and_a_paused_queue_deals_nothing(clock: Clock) -> None:
    make("work", preset="topics", max_deliveries=1, dead_letter="dlq")
    numbers = put(10)
    claim(4)
    clock.advance(seconds=31)
    engine.run(engine.pause("work"))
    claimers = [Claimer("w1", 3), Claimer("w2", 3)]
    assert engine.run(deal("work", claimers)) == [[], []]
    engine.run(engine.pause("work", paused=False))
    hands = engine.run(deal("work", claimers))
    assert sorted(seqs(hands[0]) + seqs(hands[1])) == numbers[4:]
    assert [len(hand) for hand in hands] == [3, 3]


def test_a_cohort_is_dealt_to_once(clock: Clock) -> None:
    queue = make("work", preset="topics", claim_jitter_ms=100)
    numbers = put(9)
    found = engine.run(look("work"))
    first = engine.run(join(queue, 100, [Claimer("w1", 2)]))
    assert first.wait_ms == 100
    clock.advance(milliseconds=40)
    second = engine.run(join(queue, 100, [Claimer("w2", 100), Claimer("w3", 0)]))
    assert second.wait_ms == 60  # the window that the first one opened
    clock.advance(milliseconds=60)
    assert engine.run(take(first.waiters)) == {}
    mine = engine.run(deal_cohort("work", found, first.waiters)).hands
    assert {waiter: seqs(jobs) for waiter, jobs in mine.items()} == {first.waiters[0]: [numbers[0], numbers[2]]}
    theirs = engine.run(take(second.waiters))
    assert [len(theirs[waiter]) for waiter in second.waiters] == [7, 0]
    assert {job.node for job in LiveJob.objects.filter(seq__in=seqs(theirs[second.waiters[0]]))} == {"w2"}
    assert not ClaimWaiter.objects.exists()
    # Whoever comes to deal after somebody else did finds what it was dealt.
    third = engine.run(join(queue, 100, [Claimer("w1", 2)]))
    fourth = engine.run(join(queue, 100, [Claimer("w2", 2)]))
    assert engine.run(deal_cohort("work", found, third.waiters)).hands == {third.waiters[0]: []}
    assert engine.run(deal_cohort("work", found, fourth.waiters)).hands == {fourth.waiters[0]: []}


def test_whoever_leaves_keeps_nothing(clock: Clock) -> None:
    queue = make("work", preset="topics", claim_jitter_ms=100)
    numbers = put(4)
    found = engine.run(look("work"))
    gone = engine.run(join(queue, 100, [Claimer("gone", 2)]))
    late = engine.run(join(queue, 100, [Claimer("late", 2)]))
    stays = engine.run(join(queue, 100, [Claimer("stays", 4)]))
    assert engine.run(leave(gone.waiters)) == 0  # within the window
    hands = engine.run(deal_cohort("work", found, stays.waiters)).hands
    assert len(hands[stays.waiters[0]]) == 2
    assert engine.run(leave(late.waiters)) == 2  # after it was dealt to
    again = claim(4, node="other")
    assert [(job.seq in numbers, job.deliveries) for job in again] == [(True, 1), (True, 1)]


def test_waiters_of_a_server_that_died_get_nothing(clock: Clock) -> None:
    queue = make("work", preset="topics", claim_jitter_ms=100)
    put(4)
    found = engine.run(look("work"))
    engine.run(join(queue, 100, [Claimer("dead", 4)]))
    clock.advance(seconds=11)
    mine = engine.run(join(queue, 100, [Claimer("alive", 4)]))
    assert len(engine.run(deal_cohort("work", found, mine.waiters)).hands[mine.waiters[0]]) == 4
    clock.advance(seconds=60)
    mine = engine.run(join(queue, 100, [Claimer("alive", 4)]))
    engine.run(deal_cohort("work", found, mine.waiters))
    assert not ClaimWaiter.objects.exists()
