"""Queues themselves: make, read, change, list, pause, delete; presets; projects."""

from typing import Any

import pytest

from django_leasequeue import engine, models
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.queues.presets import DEFAULTS, PRESETS
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import Attempt, Claim, JobResult, QueueFloor, QueueRank, QueueStat, StoredJob
from tests.engine.helpers import NODE, claim, enqueue, make, one, put, seqs, state
from tests.support.rows import rows

pytestmark = pytest.mark.django_db


def config(name: str = "work", project: str = "") -> dict[str, object]:
    info = engine.run(engine.get(name, project=project))
    return info.config


@pytest.mark.parametrize(("preset", "expected"), [
    ("topics", {"lease_ms": 30_000, "max_deliveries": 0, "result_ttl_ms": 0, "priority_order": "none"}),
    ("zaqar", {"requeue": "original", "late_ack": "reject", "dead_letter": None}),
    ("codeq", {"requeue": "back", "max_deliveries": 5, "exhaust_at": "release", "dead_ttl_ms": 86_400_000}),
    ("codeq", {"dead_letter": "self", "result_ttl_ms": 86_400_000, "late_ack": "reject"}),
    ("jqueue", {"priority_order": "asc", "lease_ms": 300_000}),
    ("jobqueue", {"max_deliveries": 3, "result_ttl_ms": 3_600_000, "dedup_until": "result_ttl"}),
    ("django", {"durability": "fsync", "result_ttl_ms": 86_400_000, "max_deliveries": 5, "dead_letter": "self"}),
])  # fmt: skip
def test_presets(preset: str, expected: dict[str, object]) -> None:
    engine.run(engine.create("work", preset=preset))
    assert config() == {**DEFAULTS, **PRESETS[preset]}
    assert {option: config()[option] for option in expected} == expected


@pytest.mark.parametrize(("given", "kept"), [(5_000, 5_000), (1, 100), (-5, 100), (10**12, 86_400_000)])
def test_options_are_clamped_and_making_it_again_changes_nothing(given: int, kept: int) -> None:
    assert engine.run(engine.get("work")) is None
    make("work", lease_ms=given, claim_jitter_ms=given)
    assert engine.run(engine.create("work", lease_ms=9_000)) is False
    assert config()["lease_ms"] == kept
    assert config()["claim_jitter_ms"] == max(0, min(given, 5_000))
    assert list(QueueRank.objects.values_list("rank", flat=True)) == [0]


def test_configure_replaces_everything_and_counts_from_then_on(clock) -> None:
    make("plain")
    assert config("plain") == DEFAULTS
    make("work", lease_ms=5_000, max_deliveries=3, metadata={"owner": "me"})
    put(2)
    claim()
    info = engine.run(engine.configure("work", lease_ms=1_000, priority_order="asc"))
    assert info.config == {**DEFAULTS, "lease_ms": 1_000, "priority_order": "asc"}
    assert (one().deadline - clock.now).total_seconds() == 1
    enqueue(NewJob(priority=3))
    assert StoredJob.objects.latest("seq").rank == 3
    engine.run(engine.configure("work", preset="codeq"))
    assert config() == {**DEFAULTS, **PRESETS["codeq"]}


def test_what_is_read(clock) -> None:
    make("work", metadata={"a": [1]})
    info = engine.run(engine.get("work"))
    assert (info.name, info.project, info.type, info.dead_lettered, info.paused_at) == ("work", "", "queue", 0, None)
    assert (info.created_at, info.config["metadata"]) == (clock.now, {"a": [1]})
    engine.run(engine.pause("work"))
    again = engine.run(engine.get("work"))
    assert again.paused_at == clock.now
    clock.advance(seconds=5)
    engine.run(engine.pause("work"))
    third = engine.run(engine.get("work"))
    assert third.paused_at == again.paused_at


def test_queues_are_listed_by_name_in_pages_of_a_prefix_or_type() -> None:
    for name in ("b-2", "a", "b-1", "b_3", "c"):
        make(name, type="log" if name == "c" else "queue")
    make("a", project="acme")

    def names(**call: Any) -> list[str]:
        return [line.name for line in engine.run(engine.list_queues(**call))]

    assert names() == sorted(["a", "b-1", "b-2", "b_3", "c"])
    assert (names(project="acme"), names(project="nobody")) == (["a"], [])
    first = names(size=2)
    second = names(size=2, after=first[-1])
    third = names(size=2, after=second[-1])
    assert (first + second + third, len(third)) == (names(), 1)
    assert (names(prefix="b-"), names(prefix="_")) == (["b-1", "b-2"], [])
    assert (names(type="log"), names(type="queue", prefix="c")) == (["c"], [])


@pytest.mark.parametrize(("name", "project"), [
    ("A.b_c:d-9", ""), ("9" * 255, "acme"), ("x", "ü" * 256), ("work", "with space"), ("work", "a'b\"c\\"),
])  # fmt: skip
def test_any_name_that_is_allowed_in_any_project(name: str, project: str) -> None:
    make(name, project=project)
    numbers = put(queue=name, project=project)
    assert seqs(claim(1, name, project=project)) == numbers
    assert engine.run(engine.get(name, project="other")) is None


PLACES = (
    QueueStat, models.Ready, models.Delayed, Claim, models.DeadLetter, models.Record, JobResult, Attempt, StoredJob,
    QueueFloor, QueueRank, models.TopicState,
)  # fmt: skip


def test_deleting_leaves_nothing_of_the_queue_and_all_of_others() -> None:
    # A job in every place.
    for name in ("work", "keep"):
        make(name, result_ttl_ms=60_000, max_deliveries=1, exhaust_at="release", dead_letter="self")
        put(2, queue=name)
        engine.run(engine.ack(seqs(claim(1, name)), NODE))
        engine.run(engine.nack(seqs(claim(1, name)), NODE))
        put(2, queue=name, delay_ms=60_000)
        put(3, queue=name, priority=2)
        one(name, lease_ms=60_000)
        queue = models.Queue.objects.get(name=name)
        rows(QueueStat).create(queue=queue, sampled_at=queue.created_at, ready=1, delayed=1, leased=1, dead=1)
        make(f"{name}-log", type="log")
        put(2, queue=f"{name}-log")
    before = {model: model.objects.count() for model in PLACES}
    assert all(before[model] for model in PLACES if model not in (QueueFloor, Attempt))
    assert engine.run(engine.delete("work")) is True
    assert engine.run(engine.delete("work-log")) is True
    assert engine.run(engine.delete("work")) is False
    after = {model: model.objects.count() for model in PLACES}
    assert {model: 2 * count for model, count in after.items()} == before
    assert {job.queue.name for job in StoredJob.objects.select_related("queue")} == {"keep", "keep-log"}


@pytest.mark.parametrize("where", ["ready", "delayed", "leased", "dead", "record"])
def test_a_queue_with_jobs_is_not_deleted_if_it_has_to_be_empty(where: str) -> None:
    mortal = {"max_deliveries": 1, "exhaust_at": "release", "dead_letter": "self"} if where == "dead" else {}
    make("work", type="log" if where == "record" else "queue", **mortal)
    (number,) = put(1, delay_ms=60_000 if where == "delayed" else None)
    if where in ("leased", "dead"):
        one()
    if where == "dead":
        engine.run(engine.nack([number], NODE))
    with pytest.raises(InvalidOption, match="'work' is not empty"):
        engine.run(engine.delete("work", if_empty=True))
    assert state(number) == where


def test_a_queue_that_only_remembers_results_is_empty() -> None:
    make("work", result_ttl_ms=60_000)
    put(1)
    engine.run(engine.ack(seqs(claim(1)), NODE))
    assert engine.run(engine.delete("work", if_empty=True)) is True
    assert engine.run(engine.delete("work", if_empty=True)) is False
    assert StoredJob.objects.count() == JobResult.objects.count() == 0
