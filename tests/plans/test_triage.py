"""Triage of 25,000 dead letters looks at pieces: one chunk after the other, on from where it was."""

from datetime import timedelta

import pytest

from django_leasequeue.engine.dead import bulkoperation, search, triage
from django_leasequeue.engine.dead.bulkoperation import Asked, change_operation, run_batch, start_operation
from django_leasequeue.engine.dead.filter import from_query

from .filling import NOW
from .regimes import Explaining, Plan

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def _alone_and_patient(explaining: Explaining, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triage, "PATIENCE", 1e9)  # explaining takes its time
    explaining.connection.execute("UPDATE leasequeue_bulkoperation SET state = 'done' WHERE state = 'running'")


def check(plan: Plan, *indexes: str, rows: int) -> None:
    assert plan.whole_tables == [], plan.text()
    assert plan.indexes >= {f"leasequeue_{index}" for index in indexes}, plan.text()
    assert plan.table_rows() <= rows, plan.text()
    assert plan.compared <= max(rows, 100), plan.text()


def test_groups(explaining: Explaining) -> None:
    """As many probes as there are groups; the counts once through the index."""
    found = explaining.run(triage.dead_groups(from_query(""), size=20))
    assert (len(found.groups), found.exact) == (20, True)
    groups = explaining.plan("dead_groups").root["Actual Rows"]
    check(explaining.plan("dead_groups"), "dead_cause", rows=4 * groups + 100)
    check(explaining.plan("dead_group_counts"), "dead_size", rows=40_000 + 2 * groups + 100)


@pytest.mark.parametrize("query", [
    "text=error number 77", "payload=data.kwargs.customer = 17", "tag=rare", "task=app.task_3", "text=nothing",
])  # fmt: skip
def test_a_search_looks_at_one_chunk_after_the_other(explaining: Explaining, query: str) -> None:
    explaining.run(triage.dead_page(from_query(f"queue=morgue&{query}"), size=50))
    assert len(explaining.plans) <= 3 + 2 * search.MAX_SCAN // search.CHUNK
    check(explaining.plan("dead_newest"), "dead_died", rows=search.CHUNK + 10)
    check(explaining.plan("dead_match"), "deadletter_pkey", "job_pkey", rows=2 * search.CHUNK + 10)


@pytest.mark.parametrize("kind", ["retry", "redrive", "discard"])
@pytest.mark.parametrize("query", ["queue=morgue", "queue=morgue&fingerprint=print-7"])
def test_a_batch_far_behind(explaining: Explaining, kind: str, query: str) -> None:
    to = "other" if kind == "redrive" else None
    number = explaining.run(start_operation(Asked(kind, from_query(query), at=NOW, to=to, reason="plans")))
    assert number in explaining.run(bulkoperation.active_operations())
    explaining.connection.execute(
        "UPDATE leasequeue_bulkoperation SET cursor = jsonb_build_array(%s::bigint, 5) WHERE id = %s",
        [triage.micros(NOW - timedelta(seconds=12_000)), number],
    )
    assert explaining.run(run_batch(number)) is True
    oldest, index = ("dead_oldest_group", "dead_cause") if "fingerprint" in query else ("dead_oldest", "dead_died")
    check(explaining.plan(oldest), index, rows=520)
    # The letter as it is seen, its job, the letter again when it is locked.
    check(explaining.plan("dead_lock"), "deadletter_pkey", "job_pkey", rows=3 * 500 + 10)
    check(explaining.plan("dead_discard" if kind == "discard" else "redrive"), "job_pkey", rows=10 * 500 + 100)
    assert explaining.run(change_operation(number, "cancel")) is not None


def test_discarded_letters_do_not_slow_the_next_ones(explaining: Explaining) -> None:
    """What was discarded is dead in the index until vacuum: the cursor starts behind it."""
    number = explaining.run(start_operation(Asked("discard", from_query("queue=morgue"), at=NOW, reason="plans")))
    for _ in range(6):
        explaining.run(run_batch(number))
    blocks = [plan.blocks for plan in explaining.plans if plan.name == "dead_oldest"]
    assert len(blocks) == 6
    assert blocks[-1] <= blocks[0] + 30, blocks
