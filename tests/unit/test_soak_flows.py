"""The soak's oracle sees what limits, workflows and unique tasks break; clean evidence of them passes."""

from __future__ import annotations

import pytest

from tests.soak import promises
from tests.soak.evidence import SECOND
from tests.unit.soak_story import Story


@pytest.fixture
def story() -> Story:
    return Story()


def under(story: Story, *numbers: int, most: int = 1, ordered: bool = True) -> None:
    story.say("under", 0.9, [[number, "key", most, ordered] for number in numbers], who="1.x")
    for number in numbers:
        story.job(number, mode="limited")


def after(story: Story, number: int, *parents: int, tolerant: bool = False) -> None:
    story.say("after", 0.9, [[number, list(parents), tolerant]], who="1.x")


def test_one_of_a_key_after_the_other(story: Story) -> None:
    under(story, 1, 2, 3)
    for number in (1, 2, 3):
        story.run(number, number + 1)
    story.clean()


@pytest.mark.parametrize(("most", "good"), [(1, False), (2, True)])
def test_more_of_a_key_than_its_limit_allows(story: Story, most: int, good: bool) -> None:
    under(story, 1, 2, most=most)
    story.start(1, 2)
    story.run(2, 2.1, pid=12)
    story.end(1, 3)
    if good:
        story.clean()
    else:
        assert story.promise() == promises.CROWDED


@pytest.mark.parametrize(
    ("told", "at", "good"),
    [
        (None, 6.5, False),  # nobody told it
        (4.9, 5.5, False),  # it was told, and has its lease still
        (4.9, 6.5, True),
    ],
)
def test_a_slot_whose_lease_ends(story: Story, told: float | None, at: float, good: bool) -> None:
    under(story, 1, 2)
    story.start(1, 2)
    if told is not None:
        story.told(1, told)
    story.run(2, at, pid=12)
    story.end(1, 9)
    if good:
        story.clean()
    else:
        assert story.promise() == promises.CROWDED


def test_a_slot_of_a_worker_that_ends(story: Story) -> None:
    under(story, 1, 2)
    story.start(1, 2)
    story.say("told", 3, 1, 101, "stopping", who="11.x")
    story.run(2, 3.5, pid=12)
    story.end(1, 9)
    story.clean()


def test_a_slot_of_a_stopped_process(story: Story) -> None:
    under(story, 1, 2)
    story.start(1, 2)
    story.say("stop", 2.5, 11, "stop")
    story.run(2, 6.5, pid=12)
    story.say("cont", 9, 11, "stop")
    story.end(1, 9.1)
    story.clean()


def test_a_slot_of_a_killed_process(story: Story) -> None:
    under(story, 1, 2)
    story.start(1, 2)
    story.say("kill", 2.5, 11, "worker killed")
    story.run(1, 3, pid=12, delivery=2)
    story.run(2, 4, pid=12)
    story.clean()


@pytest.mark.parametrize("alone", [False, True])
def test_order_of_a_key(story: Story, alone: bool) -> None:
    under(story, 1, 2)
    story.run(2, 2)
    story.run(1, 3, alone=alone)
    if alone:
        story.clean()
    else:
        assert story.promise() == promises.ORDER


@pytest.mark.parametrize(("starts", "good"), [((2.0, 2.3, 2.6), True), ((2.0, 2.1, 2.2), False)])
def test_a_rate(story: Story, starts: tuple[float, ...], good: bool) -> None:
    # The first three wait for each other; from 1.9 on one may start at once, and one more each quarter of a second.
    story.say("paced", 1.9, [1, 2, 3], SECOND // 4, 1, who="1.x")
    for number, at in zip((1, 2, 3), starts, strict=True):
        story.job(number, mode="limited")
        story.run(number, at)
    if good:
        story.clean()
    else:
        assert story.promise() == promises.RATE


def test_a_rate_after_a_pause(story: Story) -> None:
    for number, at in ((1, 2.0), (2, 8.0)):
        story.say("paced", at - 0.1, [number, number + 10], SECOND, 1, who="1.x")
        for one, start in ((number, at), (number + 10, at + 0.95)):
            story.job(one, mode="limited")
            story.run(one, start)
    story.clean()


def test_a_child_after_its_parents(story: Story) -> None:
    for number in (1, 2, 3):
        story.job(number, mode="node")
    after(story, 3, 1, 2)
    story.run(1, 2)
    story.run(2, 2)
    story.run(3, 2.2)
    story.clean()


@pytest.mark.parametrize("how", ["done", "raised"])
@pytest.mark.parametrize("tolerant", [False, True])
def test_a_child_before_its_parent(story: Story, how: str, tolerant: bool) -> None:
    for number in (1, 2):
        story.job(number, mode="node")
    after(story, 2, 1, tolerant=tolerant)
    story.start(1, 2)
    story.end(1, 2.1, how=how)
    story.run(2, 2.2 if how == "raised" else 2.05)
    if how == "raised":
        story.run(1, 5, delivery=2)
    if how == "raised" and tolerant:
        story.clean()
    else:
        assert story.promise() == promises.EARLY


def test_what_comes_after_a_failure_need_not_run(story: Story) -> None:
    story.job(1, mode="forever")
    story.job(2, mode="never")
    after(story, 2, 1)
    story.start(1, 2)
    story.end(1, 2.1, how="raised")
    story.say("dead", 95, 1)
    story.clean()


def test_a_member_that_is_stuck(story: Story) -> None:
    story.job(1, mode="node")
    story.job(2, mode="node")
    after(story, 2, 1)
    story.run(1, 2)
    assert story.promise() == promises.LOST


def test_a_node_that_was_enqueued_twice(story: Story) -> None:
    story.job(1, mode="node")
    story.start(1, 2)
    story.end(1, 2.1, how="raised")
    story.run(1, 3, pid=12, delivery=2, seq=9)
    assert story.promise() == promises.TWICE_QUEUED


@pytest.mark.parametrize("fault", [False, True])
def test_a_job_of_a_workflow_that_completes_again(story: Story, fault: bool) -> None:
    story.job(1, mode="node")
    story.run(1, 2)
    if fault:
        story.say("fault", 2.05, 1, "restart", "begin", [])
        story.say("fault", 2.5, 1, "restart", "end", [])
    story.run(1, 6.5, pid=12, delivery=2)
    if fault:
        story.clean()
    else:
        assert story.promise() == promises.AGAIN


def test_other_values(story: Story) -> None:
    story.job(1, mode="node")
    story.run(1, 2)
    story.say("took", 2.05, 1, False, who="11.x")
    assert story.promise() == promises.INPUT


@pytest.mark.parametrize(("claimed", "good"), [(2.9, True), (3.2, False)])
def test_a_run_after_a_cancel(story: Story, claimed: float, good: bool) -> None:
    story.job(1, mode="limited")
    story.say("recall", 2.8, [1], who="1.x")
    story.say("recalled", 3, [1], who="1.x")
    story.run(1, 3.3, claimed=claimed)
    if good:
        story.clean()
    else:
        assert story.promise() == promises.RECALLED


@pytest.mark.parametrize("word", ["recalled", "stays"])
def test_what_was_cancelled_need_not_run(story: Story, word: str) -> None:
    story.job(1, mode="limited")
    story.say("recall", 2.8, [1], who="1.x")
    story.say(word, 3, [1], who="1.x")
    if word == "recalled":
        story.clean()
    else:
        assert story.promise() == promises.LOST


@pytest.mark.parametrize(("ended", "good"), [(2.1, True), (4.0, False)])
def test_two_jobs_of_a_unique_key(story: Story, ended: float, good: bool) -> None:
    for number, at in ((1, 1.0), (2, 3.0)):
        story.job(number, at, mode="unique")
        story.say("unique", at + 0.1, number, "key", who="1.x")
    story.start(1, 2)
    story.end(1, ended)
    story.run(2, 5)
    if good:
        story.clean()
    else:
        assert story.promise() == promises.TWICE_QUEUED


def test_a_job_that_an_operator_tried_again_begins_to_count_anew(story: Story) -> None:
    story.job(1, mode="doomed")
    for delivery, at in ((1, 2), (2, 3)):
        story.start(1, at, delivery=delivery)
        story.end(1, at + 0.1, delivery=delivery, how="raised")
    story.run(1, 5)
    story.clean()


def test_a_doomed_job_that_stays_dead(story: Story) -> None:
    story.job(1, mode="doomed")
    story.start(1, 2)
    story.end(1, 2.1, how="raised")
    story.say("dead", 95, 1)
    assert story.promise() == promises.INNOCENT
