"""Limits and workflows at odd moments: turns in another order, what comes back or is added, what ``verify`` finds."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID, uuid4

import pytest
from django.db import transaction

from django_leasequeue import engine
from django_leasequeue.engine import Ending, LimitValues, Node
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.dead.action import act, edit_and_retry
from django_leasequeue.engine.flow import workflows
from django_leasequeue.engine.operation import BEGIN
from django_leasequeue.engine.verify import verify
from django_leasequeue.enums import WorkflowState
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import DeadLetter, Delayed, FlowTurn, Limit, Member, Queue, StoredJob, Workflow
from tests.engine import helpers
from tests.engine.flow import ack, differences, fail, limited, names, node, run_all, start, states, status
from tests.engine.helpers import NODE, claim, claim_only, give_back, make, open_transaction, outcomes, seqs
from tests.support.rows import rows
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("waiting", [1, 2])
def test_a_job_that_was_cancelled_before_its_claimer_knew_keeps_no_slot(waiting: int) -> None:
    make()
    first, *cancelled, last = limited(["x"] * (waiting + 2))
    running = claim_only(first)
    # While one claimer makes the members, another one takes the turn of the cancel, and finds no member yet.
    engine.run(engine.cancel("work", seqs=cancelled))
    rows(FlowTurn).delete()
    ack(running)
    (running,) = (job for _ in range(4) for job in claim(10))
    assert (running.seq, differences()) == (last, [])
    ack(running)
    assert claim(10) == []
    assert not Member.objects.exists()


@pytest.mark.django_db(transaction=True)
class TestOnConnectionsOfTheirOwn:
    def test_order_holds_although_a_claimer_is_slow(self) -> None:
        """A claimer that has taken the first job's turn, and stands still, is waited for by later jobs of the queue."""
        queue_id = make()
        (first,) = limited(["x"])
        with open_transaction() as slow:
            slow.connection.execute("SELECT 1")
            assert slow.run(engine.advance([queue_id])) == 1
            (second,) = limited(["x"])
            assert claim(10) == []
            slow.connection.commit()
        ack(claim_only(first))
        claim_only(second)

    def test_a_cancel_and_an_end_in_two_queues_do_not_wait_for_each_other(self) -> None:
        make("one")
        make("two")
        uid = start(node("a", queue="one"), node("b", queue="two"))
        both = ["one", "two"]
        a, b = claim(2, both)
        while a.token < b.token:  # an even chance: tokens are random
            give_back(a, 0)
            give_back(b, 0)
            a, b = claim(2, both)
        with open_transaction() as settler, helpers.own_connection() as other:
            other.connection.execute("SET lock_timeout = '60s'")
            assert outcomes(settler.run(engine.finish([Ending(b.seq, b.token)], NODE))) == ["ok"]
            assert other.run(engine.cancel_workflow(uid)) == 0
            assert outcomes(settler.run(engine.finish([Ending(a.seq, a.token)], NODE))) == ["ok"]
            settler.connection.commit()
        assert claim(10, both) == []
        assert status(uid)[2:] == (2, 0, 0)


#: Ways of a dead letter back into a queue, and the queue.
WAYS = {"retry": "work", "redrive": "other", "edit": "work"}
BOTH = ["work", "other"]


@pytest.fixture(params=["self", "graveyard"])
def place(request: pytest.FixtureRequest, clock: Clock) -> str:
    make(max_deliveries=1, exhaust_at="release", dead_letter=request.param, result_ttl_ms=86_400_000)
    make("other", result_ttl_ms=86_400_000)
    return str(request.param)


def only(label: str, queue: str | list[str] = "work") -> engine.LeasedJob:
    (job,) = claim(10, queue)
    assert job.data == {"label": label}
    return job


def bury(job: engine.LeasedJob) -> None:
    fail(job)
    engine.run(engine.advance([job.queue_id]))


def bring_back(way: str, place: str) -> None:
    dead = DeadLetter.objects.get()
    if way == "edit":
        queue = "work" if place == "self" else place
        edited = engine.run(edit_and_retry(queue, dead.seq, data={"key": "x", "name": "a"}, dead_at=dead.dead_at))
        assert edited.conflict is None
    else:
        assert engine.run(act(way, [dead.seq], to=WAYS[way] if way == "redrive" else None)).done == 1
    assert not DeadLetter.objects.exists()


@pytest.mark.parametrize("way", WAYS)
def test_it_waits_for_its_slot(place: str, way: str) -> None:
    limited(["x", "x"])
    (first,) = claim(10)
    bury(first)
    (second,) = claim(10)
    bring_back(way, place)
    assert claim(10, BOTH) == []
    ack(second)
    (again,) = claim(10, BOTH)
    assert again.queue == WAYS[way]
    assert Member.objects.filter(taken=True).count() == 1
    ack(again)
    engine.run(engine.advance([again.queue_id]))
    assert not Member.objects.exists()


@pytest.mark.parametrize("way", WAYS)
def test_the_rest_of_its_workflow_goes_on(place: str, way: str) -> None:
    uid = start(node("a"), node("b", 0), node("c", 1))
    bury(only("a"))
    assert status(uid)[0] == "failed"
    bring_back(way, place)
    (again,) = claim(10, BOTH) or claim(10, BOTH)
    assert (again.queue, status(uid)[0]) == (WAYS[way], "running")
    ack(again)
    b = only("b", BOTH)
    assert seqs(engine.run(engine.inputs(b.seq))) == [again.seq]
    ack(b)
    assert run_all() == [["c"]]
    assert status(uid) == ("completed", 0, 3, 0, 0)


def test_a_job_that_a_claim_finds_used_up_gives_its_slot_back(clock: Clock) -> None:
    make(max_deliveries=1, exhaust_at="claim", dead_letter="graveyard")
    first, second = limited(["x", "x"])
    give_back(claim_only(first), 0)
    claim(10)
    assert seqs(claim(10) or claim(10)) == [second]
    assert DeadLetter.objects.count() == 1


def test_the_job_for_failures_starts_wherever_the_dead_letter_went(place: str) -> None:
    uid = start(node("a"), node("b", 0), on_failure=node("sorry"))
    bury(only("a"))
    assert status(uid)[0] == "failed"
    only("sorry")


@pytest.mark.parametrize("way", WAYS)
def test_a_tolerant_job_takes_the_failure_while_the_dead_letter_is_tried_again(place: str, way: str) -> None:
    start(node("a"), node("b", 0, tolerant=True))
    bury(*claim(10))
    (joint,) = claim(10)
    bring_back(way, place)
    for heard in (False, True):
        if heard:
            engine.run(engine.advance(list(Queue.objects.values_list("id", flat=True))))
        (outcome,) = engine.run(engine.inputs(joint.seq))
        assert (outcome.completed, outcome.error_type, outcome.error) == (False, "E", "no")
    ack(*claim(10, BOTH))
    (outcome,) = engine.run(engine.inputs(joint.seq))
    assert (outcome.completed, outcome.error_type) == (True, None)


@pytest.fixture
def running() -> engine.LeasedJob:
    """A job that has the only slot; behind it one that waits, beside it a workflow."""
    make(result_ttl_ms=86_400_000)
    limited(["x", "x"])
    start(node("a"), node("b", 0))
    job, beside = claim(10)
    assert (beside.data, differences()) == ({"label": "a"}, [])
    return job


def test_a_slot_without_a_job(running: engine.LeasedJob) -> None:
    ack(running)
    assert differences() == []  # its turn is to come
    rows(FlowTurn).delete()
    assert differences() == ["lost_slot"]


def test_a_job_without_a_slot_and_one_that_nothing_holds(running: engine.LeasedJob) -> None:
    rows(Member).filter(pk=running.seq).update(taken=False)
    assert differences() == ["no_slot"]
    rows(Member).filter(pk=running.seq).update(taken=True)
    rows(Member).filter(waits=True).update(waits=False)
    assert differences() == ["waits_for_nothing"]
    rows(Member).filter(waits=False, key__isnull=False, taken=False).delete()
    assert differences() == ["held_by_nobody"]


def test_more_than_the_limit(running: engine.LeasedJob) -> None:
    engine.run(engine.set_limits([LimitValues("customer", concurrency=2)]))
    assert len(claim(10)) == 1
    assert differences() == []
    rows(Limit).update(concurrency=1)
    assert differences() == ["too_many_slots"]


@pytest.fixture
def queue(db: None) -> None:
    make(max_deliveries=1, exhaust_at="release", dead_letter="self", result_ttl_ms=86_400_000)


def seq_of(label: str) -> int:
    return Member.objects.get(label=label).pk


def extend(uid: UUID, *nodes: Node, after: tuple[str, ...] = ()) -> None:
    """Add nodes; ``after`` are the labels of the known nodes, which ``parents`` count first."""
    engine.run(engine.extend_workflow(nodes, uid, known=[seq_of(label) for label in after]))


@pytest.mark.usefixtures("queue")
class TestAdding:
    def test_nodes_start_after_old_and_new_ones(self) -> None:
        uid = start(node("a"), node("b", 0))
        a = only("a")
        extend(uid, node("x", 0), node("y"), node("z", 2, 1, 0), after=("a",))
        assert status(uid) == ("running", 5, 0, 0, 0)
        only("y")
        ack(a, result="of a")
        rest = claim(10)
        assert names(rest) == ["b", "x"]
        ack(*rest)
        assert claim(10) == []
        assert states(uid)["z"] == "waiting"
        engine.run(engine.cancel("work", seqs=[seq_of("y")]))

    def test_a_parent_that_has_completed_already_counts(self) -> None:
        uid = start(node("a"), node("b", 0))
        ack(only("a"), result=7)
        b = only("b")
        extend(uid, node("x", 0), node("y", 0, 1), after=("a", "b"))
        x = only("x")
        assert [one.result_json for one in engine.run(engine.inputs(x.seq))] == ["7"]
        ack(x, b)
        assert run_all() == [["y"]]
        assert status(uid) == ("completed", 0, 4, 0, 0)

    def test_a_parent_that_ends_before_the_link_is_not_missed(self) -> None:
        uid = start(node("a"), node("b"))
        a, b = claim(10)
        extend(uid, node("x", 0, 1), after=("a", "b"))
        ack(a, b)
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
        where = {"x": "cancelled", "x2": "cancelled", "t": "running", "both": "waiting"}
        assert {label: states(uid)[label] for label in where} == where
        ack(tolerant, b)
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
        ack(a)
        while engine.run(engine.advance([a.queue_id])):
            pass
        assert status(uid) == ("running", 1, 1, 0, 0)
        ack(*claim(10, queue="elsewhere"))
        claim(10, queue="elsewhere")
        assert status(uid) == ("completed", 0, 2, 0, 0)
        assert not Delayed.objects.exists()

    def test_under_a_limit(self) -> None:
        one = ("x", LimitValues("k", concurrency=1))
        uid = start(node("c"), node("d"))
        c, d = claim(10)
        ack(c)
        assert claim(10) == []
        extend(uid, node("l1", 0, limit=one), node("l2", 0, limit=one), node("l3", limit=one), after=("c",))
        assert sorted(label for (label,) in run_all()) == ["l1", "l2", "l3"]
        ack(d)
        assert claim(10) == []
        assert status(uid) == ("completed", 0, 5, 0, 0)

    def test_a_cancelled_workflow_takes_new_nodes_with_it(self) -> None:
        uid = start(node("a"), node("b"))
        running = claim(1)
        extend(uid, node("x", 0), node("y"), after=("a",))
        assert engine.run(engine.cancel_workflow(uid)) == 3
        ack(*running)
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


@pytest.mark.usefixtures("queue")
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
        for nodes, after, of, text in (
            ([node("x", 0)], ("other",), uid, "are not"), ([node("x", 1)], ("a",), uid, "stand before it"),
            ([], (), uid, "1 to 10000 jobs"), ([node("x")], (), uuid4(), "no workflow"),
        ):  # fmt: skip
            with pytest.raises(InvalidOption, match=text):
                extend(of, *nodes, after=after)
        run_all()
        with pytest.raises(InvalidOption, match="has ended: completed"):
            extend(uid, node("x"))
        assert StoredJob.objects.count() == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("queue")
class TestAtTheSameTime:
    def test_an_open_transaction_that_adds_keeps_nobody_waiting(self) -> None:
        uid = start(node("a"), node("b", 0))
        a = only("a")
        with transaction.atomic():
            extend(uid, node("x", 0), after=("a",))
            with helpers.own_connection() as other:
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
            with helpers.own_connection() as executor:
                while True:
                    last = done.is_set()
                    jobs = executor.run(engine.claim("work", name, 5))
                    ran.extend(job.data["label"] for job in jobs)
                    if jobs:
                        executor.run(engine.finish([engine.Ending(job.seq, job.token) for job in jobs], name))
                    if last and not jobs:
                        return

        def grow(first: int) -> None:
            with helpers.own_connection() as executor:
                for number in range(first, 40, 2):
                    mine, beside = parents[f"p{number}"], parents[f"p{number ^ 1}"]
                    new = [node(f"x{number}", 0), node(f"y{number}", 0, 1, 2), node(f"z{number}")]
                    executor.run(engine.extend_workflow(new, uid, known=[mine.seq, beside.seq]))
                    executor.run(engine.finish([engine.Ending(mine.seq, mine.token)], "worker-1"))

        with ThreadPoolExecutor(5) as threads:
            working = [threads.submit(work, f"w{number}") for number in range(3)]
            list(threads.map(grow, range(2)))
            ack(parents["last"])
            done.set()
        assert [each.result() for each in working] == [None] * 3
        ran += [label for labels in run_all() for label in labels]
        assert sorted(ran) == sorted(f"{letter}{number}" for letter in "xyz" for number in range(40))
        assert status(uid) == ("completed", 0, 161, 0, 0)
        assert differences() == []

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
        with helpers.own_connection() as one, one.transaction():
            one.run(engine.finish([a], NODE))
            steps = iter(engine.advance([queue]))
            step = next(steps)
            with pytest.raises(StopIteration):
                while True:
                    found = [] if step[0] == BEGIN else one.fetch(*step)
                    if step[0] == "member_join":
                        engine.run(engine.finish([b], NODE))
                        other.__enter__()
                        with helpers.own_connection() as watcher:
                            look = partial(watcher.connection.execute, waits)
                            eventually(lambda look=look: look().fetchone() is not None, "it waits for the workflow")
                    step = steps.send(found)
        other.value(600)
        assert run_all() == [["x"]]
        assert status(uid) == ("completed", 0, 3, 0, 0)


def test_a_job_that_has_lost_its_membership_is_a_difference_wherever_it_waits_or_runs() -> None:
    queue_id = make()
    limited([f"k{n}" for n in range(100)])
    (later,) = limited(["x"], delay_ms=60_000)
    assert differences() == [], "a claimer is yet to bring them under their limits"
    (ready,), (first, second), (third, _) = claim(1), claim(2), claim(2)
    assert differences() == []
    give_back(ready, 0)
    engine.run(engine.advance([queue_id]))
    rows(Member).filter(seq__in=[later, *seqs([ready, first, second, third])]).delete()
    found = [item for item in engine.run(verify()).differences if item.difference == "no_member"]
    assert seqs(found) == sorted([ready.seq, later, first.seq])
    # A claim does not say which of its jobs had the limit: once one has ended, the other may never have had one.
    ack(first)
    assert differences() == ["no_member"] * 2
