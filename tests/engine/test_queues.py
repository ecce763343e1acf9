"""Queues themselves: make, read, change, list, pause; presets; projects."""

from __future__ import annotations

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.models import Job, Queue, QueueFloor
from django_leasequeue.presets import DEFAULTS, PRESETS

from .helpers import claim, enqueue, make, own_connection, put, seqs

pytestmark = pytest.mark.django_db


def config(name: str = "work", project: str = "") -> dict[str, object]:
    info = engine.run(engine.get(name, project=project))
    assert info is not None
    return info.config


def test_defaults() -> None:
    assert engine.run(engine.create("work")) is True
    assert config() == DEFAULTS


@pytest.mark.parametrize("preset", PRESETS)
def test_presets(preset: str) -> None:
    engine.run(engine.create("work", preset=preset, lease_ms=7_777))
    assert config() == {**DEFAULTS, **PRESETS[preset], "lease_ms": 7_777}


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("topics", {"lease_ms": 30_000, "max_deliveries": 0, "result_ttl_ms": 0, "priority_order": "none"}),
        ("zaqar", {"requeue": "original", "late_ack": "reject", "dead_letter": None}),
        ("codeq", {"requeue": "back", "max_deliveries": 5, "exhaust_at": "release", "dead_letter": "self"}),
        ("jqueue", {"priority_order": "asc", "lease_ms": 300_000}),
        ("jobqueue", {"max_deliveries": 3, "result_ttl_ms": 3_600_000, "dedup_until": "result_ttl"}),
        ("django", {"durability": "fsync", "result_ttl_ms": 86_400_000, "max_deliveries": 5, "dead_letter": "self"}),
    ],
)
def test_presets_are_what_the_design_says(preset: str, expected: dict[str, object]) -> None:
    engine.run(engine.create("work", preset=preset))
    assert {option: config()[option] for option in expected} == expected


def test_making_it_again_changes_nothing() -> None:
    engine.run(engine.create("work", lease_ms=5_000))
    assert engine.run(engine.create("work", lease_ms=9_000)) is False
    assert config()["lease_ms"] == 5_000
    assert QueueFloor.objects.count() == 3


@pytest.mark.parametrize(("given", "kept"), [(1, 100), (-5, 100), (10**12, 86_400_000)])
def test_clamped_options(given: int, kept: int) -> None:
    make("work", lease_ms=given, claim_jitter_ms=given)
    assert config()["lease_ms"] == kept
    assert config()["claim_jitter_ms"] == max(0, min(given, 5_000))


def test_configure_replaces_everything() -> None:
    make("work", lease_ms=5_000, max_deliveries=3, metadata={"owner": "me"})
    info = engine.run(engine.configure("work", ttl_ms=1_000))
    assert info.config == {**DEFAULTS, "ttl_ms": 1_000}
    engine.run(engine.configure("work", preset="codeq"))
    assert config() == {**DEFAULTS, **PRESETS["codeq"]}


def test_a_changed_option_counts_from_then_on(clock) -> None:
    make("work")
    put(2)
    claim()
    engine.run(engine.configure("work", lease_ms=1_000, priority_order="asc"))
    job = claim()[0]
    assert (job.deadline - clock.now).total_seconds() == 1
    enqueue(NewJob(priority=3))
    assert Job.objects.latest("seq").rank == 3


def test_what_is_read(clock) -> None:
    make("work", metadata={"a": [1]})
    info = engine.run(engine.get("work"))
    assert info is not None
    assert (info.name, info.project, info.type, info.dead_lettered, info.paused_at) == ("work", "", "queue", 0, None)
    assert (info.created_at, info.config["metadata"]) == (clock.now, {"a": [1]})
    engine.run(engine.pause("work"))
    again = engine.run(engine.get("work"))
    assert again is not None
    assert again.paused_at == clock.now
    clock.advance(seconds=5)
    engine.run(engine.pause("work"))
    third = engine.run(engine.get("work"))
    assert third is not None
    assert third.paused_at == again.paused_at


def test_reading_makes_nothing() -> None:
    assert engine.run(engine.get("work")) is None
    assert not Queue.objects.exists()


class TestList:
    @pytest.fixture(autouse=True)
    def _queues(self, db: None) -> None:
        for name in ("b-2", "a", "b-1", "b_3", "c"):
            make(name, type="log" if name == "c" else "queue")
        make("a", project="acme")

    def names(self, **call) -> list[str]:
        return [line.name for line in engine.run(engine.list_queues(**call))]

    def test_by_name(self) -> None:
        assert self.names() == sorted(["a", "b-1", "b-2", "b_3", "c"])
        assert self.names(project="acme") == ["a"]
        assert self.names(project="nobody") == []

    def test_pages(self) -> None:
        first = self.names(size=2)
        second = self.names(size=2, after=first[-1])
        third = self.names(size=2, after=second[-1])
        assert first + second + third == self.names()
        assert len(third) == 1

    def test_prefix_and_type(self) -> None:
        assert self.names(prefix="b-") == ["b-1", "b-2"]
        assert self.names(prefix="_") == []
        assert self.names(type="log") == ["c"]
        assert self.names(type="queue", prefix="c") == []


def test_any_name_that_is_allowed() -> None:
    for name in ("x", "A.b_c:d-9", "9" * 255):
        make(name)
        numbers = put(queue=name)
        assert seqs(claim(1, name)) == numbers


@pytest.mark.parametrize("project", ["acme", "ü" * 256, "with space", "a'b\"c\\"])
def test_any_project(project: str) -> None:
    make("work", project=project)
    numbers = put(project=project)
    assert seqs(claim(project=project)) == numbers
    assert engine.run(engine.get("work")) is None


@pytest.mark.django_db(transaction=True)
def test_two_that_make_one_queue_at_once() -> None:
    with own_connection() as a, own_connection() as b:
        made = [executor.run(engine.create("work", lease_ms=1_000 * number)) for number, executor in ((1, a), (2, b))]
    assert sorted(made) == [False, True]
    assert QueueFloor.objects.count() == 3
