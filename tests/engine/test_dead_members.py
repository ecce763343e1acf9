"""Dead letters of limits and workflows: whichever way they come back, they keep their limit and their place."""

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, Release
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.engine.dead.action import act, edit_and_retry
from django_leasequeue.models import DeadLetter, Member, Queue
from tests.engine.flow import limited
from tests.engine.graphs import names, node, run_all, start, status
from tests.engine.helpers import NODE, claim, make

pytestmark = pytest.mark.django_db

#: Ways of a dead letter back into a queue, and the queue.
WAYS = {"retry": "work", "redrive": "other", "edit": "work"}
PLACES = ["self", "graveyard"]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, clock: engine_clock.Clock) -> str:
    make(max_deliveries=1, exhaust_at="release", dead_letter=request.param, result_ttl_ms=86_400_000)
    make("other", result_ttl_ms=86_400_000)
    return str(request.param)


def bury(job: engine.LeasedJob) -> None:
    """Let a job fail for the last time; its limit and workflow hear of it."""
    engine.run(engine.release([Release(job.seq, job.token, failure=Failure("E", "no"))], NODE))
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


def end(*jobs: engine.LeasedJob) -> None:
    engine.run(engine.finish([Ending(job.seq, job.token) for job in jobs], NODE))


@pytest.mark.parametrize("way", WAYS)
def test_it_waits_for_its_slot(place: str, way: str) -> None:
    limited(["x", "x"])
    (first,) = claim(10)
    bury(first)
    (second,) = claim(10)
    bring_back(way, place)
    both = ["work", "other"]
    assert claim(10, queue=both) == []
    end(second)
    (again,) = claim(10, queue=both)
    assert again.queue == WAYS[way]
    assert Member.objects.filter(taken=True).count() == 1
    end(again)
    engine.run(engine.advance([again.queue_id]))
    assert not Member.objects.exists()


@pytest.mark.parametrize("way", WAYS)
def test_the_rest_of_its_workflow_goes_on(place: str, way: str) -> None:
    uid = start(node("a"), node("b", 0), node("c", 1))
    (first,) = claim(10)
    bury(first)
    assert status(uid)[0] == "failed"
    bring_back(way, place)
    both = ["work", "other"]
    (again,) = claim(10, queue=both) or claim(10, queue=both)
    assert (again.queue, status(uid)[0]) == (WAYS[way], "running")
    end(again)
    claimed = claim(10, queue=both)
    assert names(claimed) == ["b"]
    results = engine.run(engine.inputs(claimed[0].seq))
    assert [one.seq for one in results] == [again.seq]
    end(*claimed)
    assert run_all() == [["c"]]
    assert status(uid) == ("completed", 0, 3, 0, 0)


def test_a_job_that_a_claim_finds_used_up_gives_its_slot_back(clock: engine_clock.Clock) -> None:
    make(max_deliveries=1, exhaust_at="claim", dead_letter="graveyard")
    limited(["x", "x"])
    (first,) = claim(10)
    engine.run(engine.release([Release(first.seq, first.token, delay_ms=0)], NODE))
    claim(10)
    (second,) = claim(10) or claim(10)
    assert second.seq > first.seq
    assert DeadLetter.objects.count() == 1


def test_the_job_for_failures_starts_when_a_dead_letter_went_to_its_topic(clock: engine_clock.Clock) -> None:
    make(max_deliveries=1, exhaust_at="release", dead_letter="graveyard")
    uid = start(node("a"), node("b", 0), on_failure=node("sorry"))
    (first,) = claim(10)
    bury(first)
    assert status(uid)[0] == "failed"
    assert names(claim(10)) == ["sorry"]


@pytest.mark.parametrize("way", WAYS)
def test_a_tolerant_job_takes_the_failure_that_set_it_free_while_a_dead_letter_is_tried_again(
    place: str, way: str
) -> None:
    start(node("a"), node("b", 0, tolerant=True))
    bury(*claim(10))
    (joint,) = claim(10)
    bring_back(way, place)
    for heard in (False, True):
        if heard:
            engine.run(engine.advance(list(Queue.objects.values_list("id", flat=True))))
        (outcome,) = engine.run(engine.inputs(joint.seq))
        assert (outcome.completed, outcome.error_type, outcome.error) == (False, "E", "no")
    end(*claim(10, queue=["work", "other"]))
    (outcome,) = engine.run(engine.inputs(joint.seq))
    assert (outcome.completed, outcome.error_type) == (True, None)
