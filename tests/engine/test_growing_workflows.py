"""Nodes that are added to a workflow that goes on: linked once, whatever their parents do meanwhile."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID, uuid4

import pytest
from django.db import transaction

from django_leasequeue import engine
from django_leasequeue.engine import Ending, LimitValues, Node
from django_leasequeue.engine.flow import workflows
from django_leasequeue.engine.operation import BEGIN
from django_leasequeue.engine.verify import snapshot, verify
from django_leasequeue.enums import WorkflowState
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import Delayed, FlowTurn, Member, Queue, StoredJob, Workflow
from tests.engine.graphs import fail, finish, names, node, run_all, start, states, status
from tests.engine.helpers import NODE, claim, make, own_connection
from tests.support.rows import rows
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def queue(db: None) -> None:
    make(max_deliveries=1, exhaust_at="release", dead_letter="self", result_ttl_ms=86_400_000)


def seq_of(label: str) -> int:
    return Member.objects.get(label=label).pk


def extend(uid: UUID, *nodes: Node, after: tuple[str, ...] = ()) -> None:
    """Add nodes; ``after`` are the labels of the known nodes, which ``parents`` count first."""
    engine.run(engine.extend_workflow(nodes, uid, known=[seq_of(label) for label in after]))


def only(label: str) -> engine.LeasedJob:
    (job,) = claim(10)
    assert job.data == {"label": label}
    return job


@pytest.mark.django_db
class TestAdding:
    def test_nodes_start_after_old_and_new_ones(self) -> None:
        uid = start(node("a"), node("b", 0))
        a = only("a")
        extend(uid, node("x", 0), node("y"), node("z", 2, 1, 0), after=("a",))
        assert status(uid) == ("running", 5, 0, 0, 0)
        assert names(claim(10)) == ["y"]
        finish([a], result="of a")
        rest = claim(10)
        assert names(rest) == ["b", "x"]
        finish(rest)
        assert claim(10) == []
        assert states(uid)["z"] == "waiting"
        engine.run(engine.cancel("work", seqs=[seq_of("y")]))

    def test_a_parent_that_has_completed_already_counts(self) -> None:
        uid = start(node("a"), node("b", 0))
        finish([only("a")], result=7)
        b = only("b")
        extend(uid, node("x", 0), node("y", 0, 1), after=("a", "b"))
        (x,) = claim(10)
        assert [one.result_json for one in engine.run(engine.inputs(x.seq))] == ["7"]
        finish([x, b])
        assert run_all() == [["y"]]
        assert status(uid) == ("completed", 0, 4, 0, 0)

    def test_a_parent_that_ends_before_the_link_is_not_missed(self) -> None:
        uid = start(node("a"), node("b"))
        a, b = claim(10)
        extend(uid, node("x", 0, 1), after=("a", "b"))
        finish([a, b])
        assert FlowTurn.objects.count() == 2
        assert run_all() == [["x"]]
        assert status(uid) == ("completed", 0, 3, 0, 0)

    def test_after_a_failure_a_node_is_cancelled_unless_it_is_tolerant(self) -> None:
        uid = start(node("a"), node("b"), node("c", 0))
        a, b = claim(10)
        fail(a)
        assert claim(10) == []
        new = [node("x", 0), node("x2", 2), node("t", 1, tolerant=True), node("both", 0, 4, tolerant=True)]
        extend(uid, *new, after=("a", "c"))
        tolerant = only("t")
        assert [states(uid)[label] for label in ("x", "x2", "t", "both")] == [
            *("cancelled", "cancelled", "running", "waiting")
        ]
        finish([tolerant, b])
        assert run_all() == [["both"]]
        assert status(uid) == ("failed", 0, 3, 1, 3)
        engine.run(engine.redrive("work", [a.seq]))
        assert run_all() == [["a"], ["c", "x"], ["x2"]]
        assert status(uid) == ("completed", 0, 7, 0, 0)

    def test_the_workflow_does_not_end_before_the_link(self) -> None:
        uid = start(node("a"), on_failure=node("sorry"))
        a = only("a")
        make("elsewhere")
        extend(uid, node("x", 0, queue="elsewhere"), after=("a",))
        finish([a])
        queue = Queue.objects.get(name="work").pk
        while engine.run(engine.advance([queue])):
            pass
        assert status(uid) == ("running", 1, 1, 0, 0)
        finish(claim(10, queue="elsewhere"))
        claim(10, queue="elsewhere")
        assert status(uid) == ("completed", 0, 2, 0, 0)
        assert not Delayed.objects.exists()

    def test_under_a_limit(self) -> None:
        one = ("x", LimitValues("k", concurrency=1))
        uid = start(node("c"), node("d"))
        c, d = claim(10)
        finish([c])
        assert claim(10) == []
        extend(uid, node("l1", 0, limit=one), node("l2", 0, limit=one), node("l3", limit=one), after=("c",))
        ran = run_all()
        assert [len(labels) for labels in ran] == [1, 1, 1]
        assert sorted(label for (label,) in ran) == ["l1", "l2", "l3"]
        finish([d])
        assert claim(10) == []
        assert status(uid) == ("completed", 0, 5, 0, 0)

    def test_a_cancelled_workflow_takes_new_nodes_with_it(self) -> None:
        uid = start(node("a"), node("b"))
        running = claim(1)
        extend(uid, node("x", 0), node("y"), after=("a",))
        assert engine.run(engine.cancel_workflow(uid)) == 3
        finish(running)
        assert claim(10) == []
        assert status(uid) == ("cancelled", 0, 1, 0, 3)
        with pytest.raises(InvalidOption, match="has ended: cancelled"):
            extend(uid, node("z"))

    def test_what_comes_to_a_cancelled_or_forgotten_workflow_is_taken_out(self) -> None:
        uid = start(node("a"))
        claim(1)
        extend(uid, node("x", 0), node("y"), after=("a",))
        rows(Workflow).update(state=WorkflowState.CANCELLED)
        assert claim(10) == []
        claim(10)
        assert status(uid) == ("cancelled", 1, 0, 0, 2)
        uid = start(node("c"))
        claim(1)
        extend(uid, node("p", 0), node("q"), after=("c",))
        rows(Workflow).all().delete()
        assert claim(10) == []
        assert not Member.objects.filter(label__in=["p", "q"]).exists()
        assert not Delayed.objects.exists()


@pytest.mark.django_db
class TestRefused:
    def test_too_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        uid = start(node("a"), node("b", 0))
        monkeypatch.setattr(workflows, "MAX_NODES", 4)
        monkeypatch.setattr(workflows, "MAX_EDGES", 2)
        extend(uid, node("c"))
        with pytest.raises(InvalidOption, match="at most 4 jobs; there would be 5"):
            extend(uid, node("x"), node("y"))
        claim(10)
        with pytest.raises(InvalidOption, match="at most 4 jobs; there would be 5"):
            extend(uid, node("x"), node("y"))
        extend(uid, node("d", 0), after=("a",))
        monkeypatch.setattr(workflows, "MAX_NODES", 5)
        with pytest.raises(InvalidOption, match="at most 2 parents together; there are 3"):
            extend(uid, node("e", 0), after=("a",))

    def test_what_is_not_of_this_workflow(self) -> None:
        uid = start(node("a"))
        start(node("other"))
        with pytest.raises(InvalidOption, match="are not"):
            extend(uid, node("x", 0), after=("other",))
        with pytest.raises(InvalidOption, match="stand before it"):
            extend(uid, node("x", 1), after=("a",))
        with pytest.raises(InvalidOption, match="1 to 10000 jobs"):
            extend(uid)
        with pytest.raises(InvalidOption, match="no workflow"):
            extend(uuid4(), node("x"))
        run_all()
        with pytest.raises(InvalidOption, match="has ended: completed"):
            extend(uid, node("x"))
        assert StoredJob.objects.count() == 2


@pytest.mark.django_db(transaction=True)
class TestAtTheSameTime:
    def test_an_open_transaction_that_adds_keeps_nobody_waiting(self) -> None:
        uid = start(node("a"), node("b", 0))
        a = only("a")
        with transaction.atomic():
            extend(uid, node("x", 0), after=("a",))
            with own_connection() as other:
                other.run(engine.finish([engine.Ending(a.seq, a.token)], "worker-1"))
                other.connection.execute("SET lock_timeout = '60s'")
                (b,) = other.run(engine.claim("work", "worker-2", 10))
                assert b.data == {"label": "b"}
                other.run(engine.finish([engine.Ending(b.seq, b.token)], "worker-2"))
                assert other.run(engine.claim("work", "worker-2", 10)) == []
        assert run_all() == [["x"]], "the parent had ended, and the workflow as well, when it was added"
        assert status(uid) == ("completed", 0, 3, 0, 0)

    def test_parents_that_end_at_the_same_moment_start_each_child_once(self) -> None:
        """Adders and claimers on connections of their own: each child runs once, none is left behind."""
        uid = start(*[node(f"p{number}") for number in range(40)], node("last"))
        parents = {job.data["label"]: job for job in claim(100)}
        ran: list[str] = []
        done = threading.Event()

        def work(name: str) -> None:
            with own_connection() as executor:
                while True:
                    last = done.is_set()
                    jobs = executor.run(engine.claim("work", name, 5))
                    ran.extend(job.data["label"] for job in jobs)
                    if jobs:
                        executor.run(engine.finish([engine.Ending(job.seq, job.token) for job in jobs], name))
                    if last and not jobs:
                        return

        def grow(first: int) -> None:
            with own_connection() as executor:
                for number in range(first, 40, 2):
                    mine, beside = parents[f"p{number}"], parents[f"p{number ^ 1}"]
                    new = [node(f"x{number}", 0), node(f"y{number}", 0, 1, 2), node(f"z{number}")]
                    executor.run(engine.extend_workflow(new, uid, known=[mine.seq, beside.seq]))
                    executor.run(engine.finish([engine.Ending(mine.seq, mine.token)], "worker-1"))

        with ThreadPoolExecutor(5) as threads:
            working = [threads.submit(work, f"w{number}") for number in range(3)]
            list(threads.map(grow, range(2)))
            finish([parents["last"]])
            done.set()
        assert [each.result() for each in working] == [None] * 3
        ran += [label for labels in run_all() for label in labels]
        assert sorted(ran) == sorted(f"{letter}{number}" for letter in "xyz" for number in range(40))
        assert status(uid) == ("completed", 0, 161, 0, 0)
        with own_connection() as executor, snapshot(executor.connection) as reader:
            assert reader.run(verify()).differences == []

    def test_limits_of_nodes_and_ends_of_their_parents_do_not_wait_for_each_other_crosswise(self) -> None:
        """One claimer tells nodes of their limit, another one of the end of a parent, which comes in between."""
        uid = start(node("a"), node("b"), node("x", 0, 1, limit=("k", LimitValues("l", concurrency=1))))
        turns = list(FlowTurn.objects.all())
        rows(FlowTurn).delete()
        a, b = (Ending(job.seq, job.token) for job in claim(1) + claim(1))
        rows(FlowTurn).bulk_create(turns)
        queue = Queue.objects.get(name="work").pk
        other = ThreadResult(lambda: engine.run(engine.advance([queue])))
        waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        with own_connection() as one, one.transaction():
            one.run(engine.finish([a], NODE))
            steps = engine.advance([queue]).steps()
            step = next(steps)
            with pytest.raises(StopIteration):
                while True:
                    found = [] if step[0] == BEGIN else one.fetch(*step)
                    if step[0] == "member_join":
                        engine.run(engine.finish([b], NODE))
                        other.__enter__()
                        with own_connection() as watcher:
                            look = partial(watcher.connection.execute, waits)
                            eventually(lambda look=look: look().fetchone() is not None, "it waits for the workflow")
                    step = steps.send(found)
        other.value(600)
        assert run_all() == [["x"]]
        assert status(uid) == ("completed", 0, 3, 0, 0)
