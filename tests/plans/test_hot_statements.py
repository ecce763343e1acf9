"""The operations that jobs pass through, with every size of batch: nothing is read whole, none compared with itself."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, Limited, LimitValues, NewJob, Release, clock
from django_leasequeue.engine.topics import messages

from .filling import AGAIN, BATCH, BATCHED, DEAD, FRESH, IDS, NOW, OTHER
from .regimes import SIZES, Explaining, check

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.sample, pytest.mark.django_db]


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def held(size: int) -> tuple[list[int], list[int]]:
    """Numbers and tokens of leased jobs: claims of 200, the last one in part."""
    seqs = list(range(BATCHED, BATCHED + size))
    return seqs, [BATCHED + (seq - BATCHED) // BATCH * BATCH for seq in seqs]


def by_node(size: int) -> Iterator[tuple[str, list[int], list[int]]]:
    """The same by claim: each node of the filled tables holds one."""
    seqs, tokens = held(size)
    for first in range(0, size, BATCH):
        yield f"holder-{first // BATCH}", seqs[first : first + BATCH], tokens[first : first + BATCH]


def test_enqueue(explaining: Explaining, size: int) -> None:
    taken = [f"busy-{seq}" for seq in range(FRESH, FRESH + 2 * size, 4)]
    jobs = [NewJob(key=key) for key in [*taken, *(f"new-{n}" for n in range(size - len(taken)))]]
    answers = explaining.run(engine.enqueue("busy", jobs))
    assert sum(answer.status == "duplicate" for answer in answers) == len(taken)
    check(explaining.plans, size)


@pytest.mark.parametrize("queue", ["other", "busy"])
def test_claim(explaining: Explaining, queue: str, size: int) -> None:
    jobs = explaining.run(engine.claim(queue, "n", size))
    assert len(jobs) == size
    assert jobs[0].seq in (OTHER, *range(FRESH, FRESH + 4), *range(AGAIN, AGAIN + 4))
    check(explaining.plans, size)


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "failures"])
def test_finish(explaining: Explaining, size: int, plain: bool) -> None:
    for node, seqs, tokens in by_node(size):
        endings = [
            Ending(seq, token, result={"n": seq}, failure=None if plain or seq % 2 else Failure("E"))
            for seq, token in zip(seqs, tokens, strict=True)
        ]
        assert sorted(explaining.run(engine.finish(endings, node)).ok) == seqs
    check(explaining.plans, size)


def test_release_and_extend(explaining: Explaining, size: int) -> None:
    for node, seqs, tokens in by_node(size):
        assert sorted(explaining.run(engine.extend(seqs, node, 5_000, tokens=tokens)).ok) == seqs
        releases = [Release(seq, token, seq % 3 * 1_000, Failure("E")) for seq, token in zip(seqs, tokens, strict=True)]
        assert sorted(explaining.run(engine.release(releases, node)).ok) == seqs
    check(explaining.plans, size)


def test_jobs_under_limits(explaining: Explaining, size: int) -> None:
    limits = [LimitValues("five", concurrency=5), LimitValues("often", rate=1_000, per_ms=1_000)]
    keys = max(1, size // 5)
    jobs = [NewJob(limit=Limited(f"{n % keys}", limits[n % keys % 2])) for n in range(size)]
    explaining.run(engine.enqueue("other", jobs))
    assert len(explaining.run(engine.claim("other", "n", 1_000))) == 1_000
    assert explaining.run(engine.advance([IDS["other"]])) == 0, "the claim has taken the turns"
    assert explaining.plan("flow_admit").root["Actual Rows"] >= max(1, size // 2), "all of the limits without a rate"
    check(explaining.plans, size)


def test_jobs_of_rates_before_all_others(explaining: Explaining, size: int) -> None:
    rate = LimitValues("often", rate=10_000, per_ms=1_000, burst=10_000)
    explaining.run(engine.enqueue("other", [NewJob(limit=Limited(f"{n % 10}", rate)) for n in range(size)]))
    assert len(explaining.run(engine.claim("other", "n", size, starts=size, others=False))) == size
    assert explaining.plan("claim_mixed").root["Actual Rows"] == size
    check(explaining.plans, size)


def test_messages_with_what_is_held(explaining: Explaining) -> None:
    """No index names the held ones: the live claims of the queue do."""
    explaining.run(engine.claim("other", "n", 100))
    page = explaining.run(messages.list_messages(IDS["other"], size=20, leased=True))
    assert [message.seq for message in page if message.claim] == list(range(OTHER, OTHER + 20))
    assert explaining.plan("message_list").table_rows() <= 250
    assert explaining.run(messages.get_ends(IDS["busy"])) is not None
    assert explaining.plan("message_ends").table_rows() <= 1_010
    check(explaining.plans, 100)


def test_refusals_and_what_the_reaper_does(explaining: Explaining) -> None:
    seqs, _ = held(1_000)
    assert explaining.run(engine.ack(seqs, "somebody else")).ok == []
    check(explaining.plans, 1_000)
    assert len(explaining.run(engine.sweep([IDS["over"], IDS["busy"]]))) == 2_000
    assert explaining.run(engine.promote([IDS["due"]])) == 10_000
    check(explaining.plans, 2_000)
    assert explaining.run(engine.expire(list(IDS.values()))) == 2_000
    with clock.hold(clock.Clock(NOW + timedelta(seconds=100))):
        assert explaining.run(engine.expire_results(1_000)) == 1_000
    check(explaining.plans, 2_000)


def test_cancel_and_redrive(explaining: Explaining) -> None:
    keys = [f"busy-{seq}" for seq in range(FRESH + 4_000, FRESH + 6_000, 4)]
    assert len(explaining.run(engine.cancel("busy", seqs=range(FRESH, FRESH + 500), keys=keys))) == 1_000
    seqs = list(range(DEAD, DEAD + 500))
    assert {answer.state for answer in explaining.run(engine.redrive("morgue", seqs))} == {"ready"}
    moved = explaining.run(engine.redrive("morgue", [seq + 500 for seq in seqs], to="other"))
    assert {answer.state for answer in moved} == {"ready"}
    check(explaining.plans, 1_000)
