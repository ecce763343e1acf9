"""Workflows: jobs that start when their parents have ended, once, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from django.db import transaction

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, LimitValues, NewJob, Node, Release
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import Delayed, FlowTurn, Job, Member, Workflow
from tests.engine.helpers import NODE, claim, make, put

pytestmark = pytest.mark.django_db

NO = Failure("E", "no")


@pytest.fixture
def clock() -> Iterator[engine_clock.Clock]:
    with engine_clock.hold(engine_clock.Clock(datetime(2030, 1, 1, 12, tzinfo=UTC))) as held:
        yield held


@pytest.fixture(autouse=True)
def queue(clock: engine_clock.Clock) -> None:
    make(max_deliveries=1, exhaust_at="release", dead_letter="self", result_ttl_ms=86_400_000)


def node(label: str, *parents: int, queue: str = "work", **options: object) -> Node:
    return Node(queue, NewJob({"label": label}), parents, label=label, **options)  # type: ignore[arg-type]


def start(*nodes: Node, **options: object) -> UUID:
    uid = uuid4()
    engine.run(engine.start_workflow(nodes, uid, **options))  # type: ignore[arg-type]
    return uid


def names(jobs: list[engine.LeasedJob]) -> list[str]:
    return sorted(job.data["label"] for job in jobs)


def finish(jobs: list[engine.LeasedJob], result: object = None) -> None:
    engine.run(engine.finish([Ending(job.seq, job.claim, result=result) for job in jobs], NODE))


def fail(job: engine.LeasedJob) -> None:
    engine.run(engine.release([Release(job.seq, job.claim, failure=NO)], NODE))


def status(uid: UUID) -> tuple[str, int, int, int, int]:
    found = engine.run(engine.get_workflow(uid))
    assert found is not None
    return found.label, found.open, found.completed, found.failed, found.cancelled


def states(uid: UUID) -> dict[str, str]:
    found = engine.run(engine.get_workflow(uid))
    assert found is not None
    return {row.label: row.state for row in engine.run(engine.workflow_nodes(found.id))}


def run_all() -> list[list[str]]:
    """Run until nothing is left; the labels of each claim."""
    rounds = []
    while jobs := claim(100):
        rounds.append(names(jobs))
        finish(jobs)
    return rounds


class TestOrder:
    def test_a_chain_runs_one_after_the_other(self) -> None:
        uid = start(node("a"), node("b", 0), node("c", 1))
        assert run_all() == [["a"], ["b"], ["c"]]
        assert status(uid) == ("completed", 0, 3, 0, 0)

    def test_a_diamond_waits_for_all(self) -> None:
        uid = start(node("a"), node("b", 0), node("c", 0), node("d", 1, 2))
        assert run_all() == [["a"], ["b", "c"], ["d"]]
        assert status(uid) == ("completed", 0, 4, 0, 0)

    def test_members_that_end_in_two_claims_start_the_child_once(self) -> None:
        start(node("a"), node("b"), node("end", 0, 1))
        (first,), (second,) = claim(1), claim(1)
        finish([first])
        assert claim(10) == []
        finish([second])
        assert run_all() == [["end"]]

    def test_nodes_of_other_queues(self) -> None:
        make("other")
        start(node("a"), node("b", 0, queue="other"), node("c", 1))
        assert run_all() == [["a"]]
        jobs = claim(10, queue="other")
        assert names(jobs) == ["b"]
        finish(jobs)
        claim(10, queue="other")  # takes the turn: whoever works there may do it
        assert run_all() == [["c"]]

    def test_nodes_under_a_limit(self) -> None:
        one = LimitValues("k", concurrency=1)
        start(node("a"), *[node(f"b{i}", 0, limit=("x", one)) for i in range(3)], node("c", 1, 2, 3))
        assert run_all() == [["a"], ["b0"], ["b1"], ["b2"], ["c"]]

    def test_results_of_parents_are_read_in_order(self) -> None:
        start(node("a"), node("b"), node("end", 1, 0))
        for job in claim(10):
            finish([job], result=job.data["label"] * 2)
        (end,) = claim(10)
        assert [one.result_json for one in engine.run(engine.inputs(end.seq))] == ['"bb"', '"aa"']

    def test_rolled_back_nothing_of_it_exists(self) -> None:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            start(node("a"), node("b", 0))
            raise ZeroDivisionError
        for table in (Workflow, Member, FlowTurn, Delayed, Job):
            assert not table.objects.exists()


class TestFailure:
    def test_what_comes_after_a_failure_is_cancelled(self) -> None:
        uid = start(node("a"), node("b", 0), node("c", 1), node("beside"))
        first = claim(10)
        (a,) = (job for job in first if job.data["label"] == "a")
        (beside,) = (job for job in first if job.data["label"] == "beside")
        fail(a)
        finish([beside])
        assert claim(10) == []
        assert status(uid) == ("failed", 0, 1, 1, 2)
        assert states(uid) == {"a": "failed", "b": "cancelled", "c": "cancelled", "beside": "completed"}

    def test_a_retry_goes_on_with_the_rest(self) -> None:
        uid = start(node("a"), node("b", 0), node("c", 1))
        (a,) = claim(10)
        fail(a)
        assert claim(10) == []
        assert status(uid) == ("failed", 0, 0, 1, 2)
        engine.run(engine.redrive("work", [a.seq]))
        assert run_all() == [["a"], ["b"], ["c"]]
        assert status(uid) == ("completed", 0, 3, 0, 0)

    def test_a_tolerant_node_starts_however_its_parents_ended(self) -> None:
        uid = start(node("a"), node("b"), node("end", 0, 1, tolerant=True))
        a, b = claim(10)
        fail(a)
        assert claim(10) == []
        finish([b])
        assert run_all() == [["end"]]
        assert status(uid) == ("failed", 0, 2, 1, 0)

    def test_the_job_for_failures_starts_once_and_only_then(self) -> None:
        uid = start(node("a"), node("b"), on_failure=node("sorry"))
        for job in claim(10):
            fail(job)
        assert run_all() == [["sorry"]]
        assert status(uid) == ("failed", 0, 0, 2, 0)
        uid = start(node("a"), on_failure=node("sorry"))
        assert run_all() == [["a"]]
        assert status(uid) == ("completed", 0, 1, 0, 0)
        assert not Delayed.objects.exists()

    def test_a_cancelled_job_cancels_what_comes_after(self) -> None:
        uid = start(node("a"), node("b", 0))
        assert engine.run(engine.cancel("work", seqs=[Member.objects.get(label="a").seq]))
        assert claim(10) == []
        assert status(uid) == ("cancelled", 0, 0, 0, 2)

    def test_cancel_takes_out_what_has_not_ended(self) -> None:
        uid = start(node("a"), node("b"), node("c", 0, 1))
        a, b = claim(10)
        finish([a])
        assert engine.run(engine.cancel_workflow(uid)) == 2
        settled = engine.run(engine.finish([Ending(b.seq, b.claim)], NODE))
        assert [str(outcome) for outcome in settled.outcomes.values()] == ["not_found"]
        assert claim(10) == []
        assert status(uid) == ("cancelled", 0, 1, 0, 2)
        assert engine.run(engine.cancel_workflow(uid)) is None

    def test_an_expired_lease_runs_again_and_goes_on(self, clock: engine_clock.Clock) -> None:
        engine.run(engine.configure("work", max_deliveries=3))
        start(node("a"), node("b", 0))
        claim(10)
        clock.advance(seconds=31)
        assert run_all() == [["a"], ["b"]]


def test_an_ended_workflow_is_forgotten_with_what_never_started(clock: engine_clock.Clock) -> None:
    uid = start(node("a"), node("b", 0))
    (a,) = claim(10)
    fail(a)
    claim(10)
    put(1)
    engine.run(engine.expire_workflows())
    assert engine.run(engine.get_workflow(uid)) is not None
    clock.advance(hours=25)
    engine.run(engine.expire_workflows())
    assert engine.run(engine.get_workflow(uid)) is None
    assert not Member.objects.exists()
    assert not Delayed.objects.exists()


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([], "1 to 10000 jobs"),
        ([node("a", 0)], "stand before it"),
        ([node("a"), node("b", 0, 0)], "each once"),
        ([Node("work", NewJob(1, key="k"))], "no key"),
        ([Node("work", NewJob(1, delay_ms=5))], "no time of its own"),
    ],
)
def test_what_is_no_graph_is_refused(nodes: list[Node], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        start(*nodes)
    assert not Job.objects.exists()
