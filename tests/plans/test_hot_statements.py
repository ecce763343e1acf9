"""No hot statement reads more than its batch, however large the tables, dead entries among them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob, Release, arrays, clock

from .conftest import NOW, Tables
from .explain import Explaining, Plan

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]

HOLDER = "holder"


def check(plan: Plan, *indexes: str, rows: int) -> None:
    """No large table as a whole, these indexes, at most so many rows of large tables, nothing squared.

    A host's planner that planned when there was no claim reads the table of claims until autovacuum tells it of more.
    """
    whole = set(plan.whole_tables)
    assert whole <= ({"leasequeue_claim"} if plan.early else set()), plan.text()
    rows += 150 * len(whole)
    assert plan.indexes >= {f"leasequeue_{index}" for index in indexes}, plan.text()
    assert plan.table_rows() <= rows, plan.text()
    assert plan.compared <= max(rows, 100), plan.text()


def held(tables: Tables, count: int, lease: str = "1 hour") -> tuple[list[int], list[int]]:
    """Seqs and claims of leased jobs."""
    start = tables.start[f"busy-2-{lease}"]
    seqs = list(range(start, start + count))
    return seqs, [start + (seq - start) // 200 for seq in seqs]


@pytest.mark.parametrize("size", [1, 20, 200, 1_000])
def test_claim(explaining: Explaining, tables: Tables, size: int) -> None:
    jobs = explaining.run(engine.claim("other", "n", size))
    assert len(jobs) == size
    check(explaining.plan("claim"), "job_ready", "job_pkey", rows=3 * size + 10)


@pytest.mark.parametrize("size", [1, 200])
def test_claim_of_several_queues_and_priorities(explaining: Explaining, tables: Tables, size: int) -> None:
    clock.current()
    jobs = explaining.run(engine.claim(["other", "expiring", "later"], "n", size))
    assert len(jobs) == size
    check(explaining.plan("claim"), "job_ready", rows=3 * size + 30)


def test_claim_beside_a_hundred_thousand_delayed_jobs(explaining: Explaining, tables: Tables) -> None:
    assert explaining.run(engine.claim("later", "n", 100)) == []
    plan = explaining.plan("claim")
    check(plan, "job_delayed", rows=5)
    assert plan.blocks < 100


def test_claim_of_an_empty_queue(explaining: Explaining, tables: Tables) -> None:
    explaining.run(engine.create("empty"))
    explaining.run(engine.claim("empty", "n", 200))
    check(explaining.plan("claim"), rows=5)


@pytest.mark.parametrize("size", [1, 50])
def test_enqueue(explaining: Explaining, tables: Tables, size: int) -> None:
    explaining.run(engine.enqueue("busy", [NewJob(data=n) for n in range(size)]))
    check(explaining.plan("enqueue"), rows=0)


@pytest.mark.parametrize("size", [1, 99, 2_000])
def test_enqueue_with_keys_half_of_them_taken(explaining: Explaining, tables: Tables, size: int) -> None:
    taken = [f"busy-{seq}" for seq in range(31_000, 131_000) if seq % 4 == 0][: size // 2]
    jobs = [NewJob(key=key) for key in [*taken, *(f"new-{n}" for n in range(size - len(taken)))]]
    answers = explaining.run(engine.enqueue("busy", jobs))
    assert sum(answer.status == "duplicate" for answer in answers) == len(taken)
    check(explaining.plan("enqueue"), "job_key", rows=3 * size + 10)


def test_enqueue_with_remembered_results(explaining: Explaining, tables: Tables) -> None:
    explaining.run(engine.configure("busy", dedup_until="result_ttl", result_ttl_ms=60_000))
    answers = explaining.run(engine.enqueue("busy", [NewJob(key=f"done-{n}") for n in range(1, 100)]))
    assert {answer.status.value for answer in answers} == {"completed"}
    check(explaining.plan("enqueue"), "result_key", rows=400)


@pytest.mark.parametrize("size", [1, 200, 1_000])
@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "unfenced"])
def test_finish(explaining: Explaining, tables: Tables, size: int, fenced: bool) -> None:
    seqs, claims = held(tables, size)
    endings = [
        Ending(seq, claim if fenced else None, result={"n": seq}, failure=Failure("E") if seq % 2 else None)
        for seq, claim in zip(seqs, claims, strict=True)
    ]
    assert explaining.run(engine.finish(endings, HOLDER)).ok == seqs
    check(explaining.plan("finish"), "job_pkey", rows=3 * size + 10)


@pytest.mark.parametrize("size", [1, 200, 1_000])
def test_release(explaining: Explaining, tables: Tables, size: int) -> None:
    seqs, claims = held(tables, size)
    releases = [Release(seq, claim, seq % 3 * 1_000, Failure("E")) for seq, claim in zip(seqs, claims, strict=True)]
    assert explaining.run(engine.release(releases, HOLDER)).ok == seqs
    check(explaining.plan("release"), "job_pkey", rows=4 * size + 20)


@pytest.mark.parametrize("size", [1, 200, 1_000])
def test_extend(explaining: Explaining, tables: Tables, size: int) -> None:
    seqs, claims = held(tables, size)
    assert explaining.run(engine.extend(seqs, HOLDER, 100, claims=claims)).ok == seqs
    check(explaining.plan("extend"), "job_pkey", "claim_pkey", rows=4 * size + 20)


def test_the_reasons_of_refusals(explaining: Explaining, tables: Tables) -> None:
    seqs, _ = held(tables, 1_000)
    assert explaining.run(engine.ack(seqs, "somebody else")).ok == []
    check(explaining.plan("finish"), rows=3_100)
    check(explaining.plan("settle_outcomes"), "job_pkey", rows=1_010)


def test_sweep(explaining: Explaining, tables: Tables) -> None:
    """Two claims of 200 have expired among a hundred that have not."""
    swept = explaining.run(engine.sweep([tables.ids[name] for name in ("other", "busy", "later")]))
    assert len(swept) == 400
    check(explaining.plan("sweep"), "claim_deadline", "job_pkey", rows=5 * 400 + 50)


def test_sweep_with_nothing_to_do(explaining: Explaining, tables: Tables) -> None:
    explaining.run(engine.sweep([tables.ids["other"]]))
    check(explaining.plan("sweep"), "claim_deadline", rows=5)


def test_claim_after_an_expiry(explaining: Explaining, tables: Tables) -> None:
    jobs = explaining.run(engine.claim("busy", "n", 500))
    assert len(jobs) == 500
    check(explaining.plan("claim"), "claim_deadline", rows=10)
    check(explaining.plan("sweep"), "claim_deadline", "job_pkey", rows=2_050)
    check(explaining.plan("claim", 1), "job_ready", rows=3 * 500 + 50)


def test_promote(explaining: Explaining, tables: Tables) -> None:
    with clock.hold(clock.Clock(NOW + timedelta(seconds=tables.start["later-1-1 hour"] + 9))):
        assert explaining.run(engine.promote([tables.ids["later"]])) == 10
    check(explaining.plan("promote"), "job_delayed", "job_pkey", rows=50)


def test_promote_with_nothing_to_do(explaining: Explaining, tables: Tables) -> None:
    explaining.run(engine.promote(list(tables.ids.values())))
    check(explaining.plan("promote"), "job_delayed", rows=5)


def test_expire(explaining: Explaining, tables: Tables) -> None:
    assert explaining.run(engine.expire(list(tables.ids.values()))) == 0
    check(explaining.plan("expire"), "job_expires", rows=10)
    with clock.hold(clock.Clock(NOW + timedelta(days=2))):
        assert explaining.run(engine.expire([tables.ids["expiring"]])) == 20_000
    check(explaining.plan("expire", 1), "job_expires", "job_pkey", rows=4_100)


def test_expire_results(explaining: Explaining, tables: Tables) -> None:
    with clock.hold(clock.Clock(NOW + timedelta(seconds=100))):
        assert explaining.run(engine.expire_results(1_000)) == 100
    check(explaining.plan("expire_results"), "result_expires", "jobresult_pkey", rows=310)


def test_floors(explaining: Explaining, tables: Tables) -> None:
    for seconds in (1, 2, 3, 70):
        with clock.hold(clock.Clock(NOW + timedelta(seconds=seconds))):
            explaining.run(engine.advance_floors())
    for number in range(4):
        plan = explaining.plan("floor", number)
        # All of them change here, so each is compared with each: the changed ones with all, that is.
        check(plan, "job_ready", "job_delayed", "claim_deadline", rows=plan.rows["leasequeue_queuefloor"] ** 2)
        assert plan.table_rows() <= 50, plan.text()


def test_cancel(explaining: Explaining, tables: Tables) -> None:
    start = 31_000
    gone = explaining.run(
        engine.cancel("busy", seqs=range(start, start + 500), keys=[f"busy-{seq}" for seq in range(40_000, 42_000, 4)])
    )
    assert len(gone) == 1_000
    check(explaining.plan("cancel"), "job_key", "job_pkey", rows=5_100)


def test_find_keys(explaining: Explaining, tables: Tables) -> None:
    keys = arrays.texts(f"busy-{seq}" for seq in range(40_000, 44_000, 4))
    rows = explaining.fetch("find_keys", {"project": "", "queue": "busy", "keys": keys})
    assert len(rows) == 1_000
    check(explaining.plan("find_keys"), "job_key", "result_key", rows=1_100)


def test_poison_at_the_claim(explaining: Explaining, tables: Tables) -> None:
    explaining.connection.execute(
        "UPDATE leasequeue_job SET deliveries = 9 WHERE seq IN (SELECT seq FROM leasequeue_job"
        " WHERE queue_id = %s AND state = 0 ORDER BY rank, position LIMIT 100)",
        [tables.ids["other"]],
    )
    explaining.run(engine.configure("other", max_deliveries=3, dead_letter="self"))
    assert len(explaining.run(engine.claim("other", "n", 50))) == 50
    check(explaining.plan("spent"), "job_ready", rows=1_010)
    check(explaining.plan("bury"), "job_pkey", rows=310)


@pytest.mark.parametrize("way", ["release", "sweep"])
def test_dead_letters_that_move(explaining: Explaining, tables: Tables, way: str) -> None:
    start = tables.start["graves-2-1 hour"]
    if way == "release":
        explaining.run(engine.nack(list(range(start, start + 500)), HOLDER))
        plan = explaining.plan("move")
    else:
        with clock.hold(clock.Clock(NOW + timedelta(hours=2))):
            explaining.run(engine.sweep([tables.ids["graves"]]))
        plan = explaining.plan("move")
    check(plan, "job_pkey", "job_key", rows=8_100)


def test_redrive(explaining: Explaining, tables: Tables) -> None:
    start = tables.start["busy-3-1 hour"]
    seqs = list(range(start, start + 1_000))
    assert {answer.state for answer in explaining.run(engine.redrive("busy", seqs))} == {"ready"}
    check(explaining.plan("redrive"), "job_pkey", rows=4_100)
    assert {
        answer.state for answer in explaining.run(engine.redrive("busy", [n + 1_000 for n in seqs], to="other"))
    } == {"ready"}
    check(explaining.plan("redrive", 1), "job_pkey", "job_key", rows=6_100)


def test_bulk_enqueue(explaining: Explaining, tables: Tables) -> None:
    rows = explaining.fetch("bulk_open", {"project": "", "queue": "busy", "size": 1_000})
    seqs = rows[0][9]
    explaining.fetch(
        "bulk_close",
        {
            "queue": tables.ids["busy"], "ranks": "{0,-1,-2}", "seqs": arrays.integers(seqs), "name": "n",
            "names": "{}", "log": True, "wake": True, "relax": False, "at": NOW,
        },
    )  # fmt: skip
    check(explaining.plan("bulk_open"), rows=0)
    check(explaining.plan("bulk_close"), "floor_place", rows=0)
