"""Workflows: jobs that start when their parents have ended, once, whatever happens."""

import pytest
from django.db import transaction

from django_leasequeue import engine
from django_leasequeue.engine import Ending, LimitValues, NewJob, Node
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.dead.action import act
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import Delayed, FlowTurn, LiveJob, Member, StoredJob, Workflow
from tests.engine.flow import NO, ack, fail, names, node, run_all, start, states, status
from tests.engine.helpers import NODE, claim, give_back, make, put

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def queue(clock: Clock) -> None:
    make(max_deliveries=1, exhaust_at="release", dead_letter="self", result_ttl_ms=86_400_000)


class TestOrder:
    @pytest.mark.parametrize(("nodes", "rounds"), [
        ([node("a"), node("b", 0), node("c", 1)], [["a"], ["b"], ["c"]]),
        ([node("a"), node("b", 0), node("c", 0), node("d", 1, 2)], [["a"], ["b", "c"], ["d"]]),
    ])  # fmt: skip
    def test_a_node_waits_for_all_its_parents(self, nodes: list[Node], rounds: list[list[str]]) -> None:
        uid = start(*nodes)
        assert run_all() == rounds
        assert status(uid) == ("completed", 0, len(nodes), 0, 0)

    def test_nodes_of_other_queues(self) -> None:
        make("other")
        start(node("a"), node("b", 0, queue="other"), node("c", 1))
        assert run_all() == [["a"]]
        jobs = claim(10, queue="other")
        assert names(jobs) == ["b"]
        ack(*jobs)
        claim(10, queue="other")  # takes the turn: whoever works there may do it
        assert run_all() == [["c"]]

    def test_a_node_does_not_start_before_its_limit_is_known(self) -> None:
        """Its parent ends, and nobody has looked at the turns of its queue."""
        make("other")
        one = ("x", LimitValues("k", concurrency=1))
        start(node("a"), *[node(f"b{number}", 0, queue="other", limit=one) for number in range(3)])
        assert run_all() == [["a"]]
        for _ in range(2):
            (job,) = claim(10, queue="other")
            ack(job)

    def test_results_of_parents_are_read_in_order(self) -> None:
        start(node("a"), node("b"), node("end", 1, 0))
        for job in claim(10):
            ack(job, result=job.data["label"] * 2)
        (end,) = claim(10)
        assert [one.result_json for one in engine.run(engine.inputs(end.seq))] == ['"bb"', '"aa"']

    def test_rolled_back_nothing_of_it_exists(self) -> None:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            start(node("a"), node("b", 0))
            raise ZeroDivisionError
        for table in (Workflow, Member, FlowTurn, Delayed, StoredJob):
            assert not table.objects.exists()


class TestFailure:
    def test_what_comes_after_a_failure_is_cancelled_and_a_retry_goes_on_with_it(self) -> None:
        uid = start(node("a"), node("b", 0), node("c", 1), node("beside"))
        a, beside = sorted(claim(10), key=lambda job: job.data["label"])
        fail(a)
        ack(beside)
        assert claim(10) == []
        assert status(uid) == ("failed", 0, 1, 1, 2)
        assert states(uid) == {"a": "failed", "b": "cancelled", "c": "cancelled", "beside": "completed"}
        engine.run(engine.redrive("work", [a.seq]))
        assert run_all() == [["a"], ["b"], ["c"]]
        assert status(uid) == ("completed", 0, 4, 0, 0)

    def test_a_tolerant_node_starts_however_its_parents_ended(self) -> None:
        uid = start(node("a"), node("b"), node("end", 0, 1, tolerant=True))
        a, b = claim(10)
        fail(a)
        assert claim(10) == []
        ack(b)
        assert run_all() == [["end"]]
        assert status(uid) == ("failed", 0, 2, 1, 0)

    def test_a_tolerant_node_starts_after_one_that_was_cancelled_for_another(self) -> None:
        uid = start(node("a"), node("b", 0), node("beside"), node("end", 1, 2, tolerant=True), node("last", 3))
        jobs = claim(10)
        fail(next(job for job in jobs if names([job]) == ["a"]))
        assert claim(10) == []
        ack(*[job for job in jobs if names([job]) == ["beside"]])
        (end,) = claim(10)
        engine.run(engine.redrive("work", [Member.objects.get(label="a").seq]))
        (a,) = claim(10)
        assert status(uid) == ("running", 4, 1, 0, 0)
        fail(a)
        ack(end)
        assert run_all() == [["last"]], "the end ran once"
        assert status(uid) == ("failed", 0, 3, 1, 1)

    def test_what_was_cancelled_for_a_failure_is_not_counted_as_waiting(self) -> None:
        start(node("a"), node("b", 0), node("c", 1))
        start(node("x"), node("y", 0))
        put(1, delay_ms=60_000)

        def figures() -> tuple[int, int]:
            found = engine.run(engine.counts("work"))
            return found.waiting, found.delayed

        a, _ = claim(10)
        assert figures() == (3, 4)
        fail(a)
        assert claim(10) == []
        assert figures() == (1, 2)
        engine.run(engine.redrive("work", [a.seq]))
        ack(*claim(10))
        assert names(claim(10)) == ["b"]
        assert figures() == (2, 3)

    def test_of_two_failures_one_is_retried(self) -> None:
        nodes = node("a"), node("b"), node("c", 0, 1), node("d", 2), node("t", 2, tolerant=True)
        uid = start(*nodes, on_failure=node("sorry"))
        a, b = claim(10)
        fail(a)
        fail(b)
        assert run_all() == [["sorry", "t"]]
        engine.run(engine.redrive("work", [a.seq]))
        assert run_all() == [["a"]]
        assert (status(uid), states(uid)["c"]) == (("failed", 0, 2, 1, 2), "cancelled")
        engine.run(engine.redrive("work", [b.seq]))
        assert run_all() == [["b"], ["c"], ["d"]]
        assert status(uid) == ("completed", 0, 5, 0, 0)

    def test_a_failure_whose_dead_letter_is_discarded_stays_a_failure(self) -> None:
        uid = start(node("a"), node("b", 0))
        (a,) = claim(10)
        fail(a)
        assert claim(10) == []
        assert engine.run(act("discard", [a.seq], reason="in vain")).done == 1
        assert claim(10) == []
        assert not FlowTurn.objects.exists()
        assert status(uid) == ("failed", 0, 0, 1, 1)

    def test_the_job_for_failures_has_a_limit(self) -> None:
        one = ("x", LimitValues("k", concurrency=1))
        start(node("first", limit=one))
        (first,) = claim(10)
        start(node("a"), on_failure=node("sorry", limit=one))
        (a,) = claim(10)
        fail(a)
        assert claim(10) == []
        ack(first)
        assert run_all() == [["sorry"]]

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

    def test_cancel_takes_out_what_nobody_has_and_counts_how_the_rest_ends(self, clock: Clock) -> None:
        uid = start(*(node(name) for name in "abcdefg"), node("h", 0, 1))
        engine.run(engine.configure("work", max_deliveries=9, result_ttl_ms=86_400_000))
        jobs = claim(6)
        a, b, c, d, e, _ = jobs
        ack(a)
        assert engine.run(engine.cancel_workflow(uid)) == 2
        held = [job.seq for job in jobs[1:]]
        settled = engine.run(engine.extend(held, NODE, tokens=[job.token for job in jobs[1:]]))
        assert {str(outcome) for outcome in settled.outcomes.values()} == {"cancelled"}
        assert list(settled.deadlines) == held
        ack(b)
        engine.run(engine.finish([Ending(c.seq, c.token, failure=NO)], NODE))
        give_back(d, 0, unstarted=True)
        give_back(e, 60_000, NO)
        assert claim(10) == claim(10) == []
        assert status(uid) == ("cancelled", 1, 2, 1, 4)
        assert engine.run(engine.cancel_workflow(uid)) == 0
        clock.advance(seconds=31)  # the last one's lease is over
        assert claim(10) == claim(10) == []
        assert status(uid) == ("cancelled", 0, 2, 1, 5)
        assert engine.run(engine.cancel_workflow(uid)) is None
        assert not LiveJob.objects.exists()

    def test_an_expired_lease_runs_again_and_goes_on(self, clock: Clock) -> None:
        engine.run(engine.configure("work", max_deliveries=3))
        start(node("a"), node("b", 0))
        claim(10)
        clock.advance(seconds=31)
        assert run_all() == [["a"], ["b"]]


def test_an_ended_workflow_is_forgotten_with_what_never_started(clock: Clock) -> None:
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


@pytest.mark.parametrize(("nodes", "text"), [
    ([node("a", 0)], "stand before it"), ([node("a"), node("b", 0, 0)], "each once"),
    ([Node("work", NewJob(1, key="k"))], "no key"), ([Node("work", NewJob(1, delay_ms=-5))], "the delay of a job"),
])  # fmt: skip
def test_what_is_no_graph_is_refused(nodes: list[Node], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        start(*nodes)
    assert not StoredJob.objects.exists()
