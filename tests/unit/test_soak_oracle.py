"""The soak's oracle sees: made-up evidence with each broken promise is named, and clean evidence passes."""

from collections.abc import Callable

import pytest

from tests.soak import promises
from tests.soak.evidence import SECOND
from tests.soak.oracle import Oracle
from tests.soak.plan import CREW, SERVER, plan
from tests.unit.soak_story import LEASE, Story


@pytest.fixture
def story() -> Story:
    return Story()


def fault(s: Story, name: str, begin: float, end: float, *roles: str) -> None:
    s.say("fault", begin, 1, name, "begin", list(roles))
    s.say("fault", end, 1, name, "end", list(roles))


def topic(s: Story, kept: list[int], there: list[int], read: list[int], name: str = "log") -> None:
    s.say("put", 1, name, kept, who="1.x")
    s.say("kept", 1.1, name, kept, who="1.x")
    s.say("read", 2, "r1", name, [[item * 10, item] for item in read], who="3.x")
    s.say("there", 92, name, [[item * 10, item] for item in there])


def extended(s: Story, at: float) -> None:
    s.say("events", at, [[7, 3, 101, round(at * SECOND), round((at + LEASE) * SECOND), [1]]], who="3.x")
    s.say("there", 91, "events", [[7, 7]])


def under(s: Story, *numbers: int, most: int = 1) -> None:
    s.say("under", 0.9, [[number, "key", most, True] for number in numbers], who="1.x")
    for number in numbers:
        s.job(number, mode="limited")


def nodes(s: Story, *numbers: int, after: dict[int, list[int]] | None = None, tolerant: bool = False) -> None:
    for number in numbers:
        s.job(number, mode="node")
    for number, parents in (after or {}).items():
        s.say("after", 0.9, [[number, parents, tolerant]], who="1.x")


def raised(s: Story, number: int, at: float, delivery: int = 1) -> None:
    s.start(number, at, delivery=delivery)
    s.end(number, at + 0.1, delivery=delivery, how="raised")


def two_runs(s: Story, told: float | None = None) -> None:
    """The second run begins while the first one goes on."""
    s.job(1)
    s.start(1, 2)
    if told is not None:
        s.told(1, told)
    s.run(1, 6.5, pid=12, delivery=2)
    s.end(1, 9)


def two_slots(s: Story, *told: object, at: float = 6.5) -> None:
    """The second job of a key starts while the first one goes on."""
    under(s, 1, 2)
    s.start(1, 2)
    for word in told:
        s.told(1, word) if isinstance(word, float) else s.say(*word)  # type: ignore[misc]
    s.run(2, at, pid=12)
    s.end(1, 9)


def stopped(s: Story, until: float = 8) -> None:
    s.say("stop", 2.001, 11, "worker stopped")
    s.say("cont", until, 11, "worker stopped")


def paced(s: Story, *starts: float) -> None:
    # The first three wait for each other; from 1.9 on one may start at once, and one more each quarter of a second.
    s.say("paced", 1.9, [1, 2, 3], 4, SECOND, who="1.x")
    for number, at in zip((1, 2, 3), starts, strict=True):
        s.job(number, mode="limited")
        s.run(number, at)


def paced_twice(s: Story, again: float = 8.0) -> None:
    """Two in two seconds, and two again."""
    for number, at in ((1, 2.0), (2, again)):
        s.say("paced", at - 0.1, [number, number + 10], 2, 2 * SECOND, who="1.x")
        for one, start in ((number, at), (number + 10, at + 0.95)):
            s.job(one, mode="limited")
            s.run(one, start)


def child(s: Story, how: str, at: float, tolerant: bool = False) -> None:
    """A child runs beside its parent, or after its first attempt."""
    nodes(s, 1, 2, after={2: [1]}, tolerant=tolerant)
    s.start(1, 2)
    s.end(1, 2.1, how=how)
    s.run(2, at)
    if how == "raised":
        s.run(1, 5, delivery=2)


def recalled(s: Story, word: str, claimed: float | None) -> None:
    """A job is cancelled; it was claimed at that time, or never."""
    s.job(1, mode="limited")
    s.say("recall", 2.8, [1], who="1.x")
    s.say(word, 3, [1], who="1.x")
    if claimed:
        s.run(1, 3.3, claimed=claimed)


def unique(s: Story, ended: float) -> None:
    for number, at in ((1, 1.0), (2, 3.0)):
        s.job(number, at, mode="unique")
        s.say("unique", at + 0.1, number, "key", who="1.x")
    s.start(1, 2)
    s.end(1, ended)
    s.run(2, 5)


def rolled_back_record(s: Story) -> None:
    topic(s, [1, 2], [1, 2, 3], [1, 2, 3])
    s.say("dropped", 1.2, "log", [3], who="1.x")
    # Written before the read is heard, as producers do.
    s.entries.insert(0, s.entries.pop())


def crashed(s: Story, queue: str) -> None:
    """A crash takes a lease back, and another worker runs the job."""
    s.job(1)
    s.start(1, 2, queue=queue)
    s.say("crash", 2.5)
    s.run(1, 3, pid=12, queue=queue)
    s.end(1, 4)


#: What happened, the calls that tell it, and the promise that it breaks. (A soak itself shows false alarms.)
STORIES: dict[str, tuple[Callable[[Story], object], str]] = {
    "a committed job that never ran": (lambda s: s.job(1), promises.LOST),
    "a committed job that never came to its end": (
        lambda s: (s.job(1), s.start(1, 2), s.say("kill", 2.5, 11, "worker killed")), promises.LOST),
    "a run after a rollback": (lambda s: (s.job(1, end="undone"), s.run(1, 2)), promises.ROLLED_BACK),
    "a job from nowhere": (lambda s: s.run(1, 2), promises.UNKNOWN),
    "a start on an expired lease": (lambda s: (s.job(1), s.run(1, 7, claimed=2)), promises.LATE),
    "a lease that was extended too late": (lambda s: (s.job(1), extended(s, 8), s.run(1, 7, claimed=2)), promises.LATE),
    "a start after a later delivery": (
        lambda s: (s.job(1), s.run(1, 3, pid=12, delivery=2), s.run(1, 3.5, claimed=1.5)), promises.LATE),
    "a late start after a stop": (
        lambda s: (s.job(1), s.job(2), s.start(2, 1.9), stopped(s), s.end(2, 8.001), s.run(1, 8.01, claimed=2)),
        promises.LATE),
    "two runs at once": (two_runs, promises.OVERLAP),
    "two runs at once, told too late": (lambda s: two_runs(s, 5.5), promises.OVERLAP),
    "a crash takes no durable lease back": (lambda s: crashed(s, "sure"), promises.OVERLAP),
    "a dead innocent": (lambda s: (s.job(1), s.start(1, 2), s.say("dead", 95, 1)), promises.INNOCENT),
    "a poison that is gone": (lambda s: (s.job(1, mode="poison"), s.start(1, 2)), promises.LOST),
    "two jobs of one key": (
        lambda s: (s.job(1, mode="keyed"), s.run(1, 2, seq=7), s.run(1, 3, delivery=2, seq=8)), promises.TWICE_QUEUED),
    "a wrong answer": (lambda s: (s.job(1), s.run(1, 2), s.say("answer", 2.2, 1, False, who="1.x")), promises.WRONG),
    "a record that was skipped": (lambda s: topic(s, [1, 2, 3], [1, 2, 3], [1, 3]), promises.SKIPPED),
    "a record that came again": (lambda s: topic(s, [1, 2, 3], [1, 2, 3], [1, 2, 2, 3]), promises.REPEATED),
    "a record out of order": (lambda s: topic(s, [1, 2, 3], [1, 2, 3], [1, 3, 2]), promises.REPEATED),
    "a durable record that a crash took": (lambda s: topic(s, [1, 2, 3], [1, 2], [1, 2]), promises.SKIPPED),
    "a record that was told and taken back": (
        lambda s: topic(s, [1, 2, 3], [1, 2], [1, 2, 3], "fast"), promises.TAKEN_BACK),
    "a record that was rolled back": (rolled_back_record, promises.TAKEN_BACK),
    "an event that was skipped": (lambda s: s.say("there", 91, "events", [[500, 500]]), promises.SKIPPED),
    "an event that came again": (
        lambda s: s.say("events", 89, [[101, 2, 101, 0, 0, [1]]], who="3.x"), promises.REPEATED),
    "a claim that the stream never told": (lambda s: (s.job(1), s.run(1, 2, delivery=7)), promises.SKIPPED),
    "a slow return": (
        lambda s: (s.job(1), fault(s, "restart", 2, 3), s.say("back", 3, "restart", ""), s.run(1, 6.1)), promises.SLOW),
    "no return at all": (lambda s: s.say("back", 3, "restart", ""), promises.SLOW),
    "what the last look finds": (lambda s: s.say("differs", 95, "1 job is left in sure"), promises.INCONSISTENT),
    # Limits, workflows and unique tasks.
    "more of a key than its limit allows": (
        lambda s: (under(s, 1, 2), s.start(1, 2), s.run(2, 2.1, pid=12), s.end(1, 3)), promises.CROWDED),
    "a slot whose lease ends, and nobody told it": (two_slots, promises.CROWDED),
    "a slot that was told, and has its lease still": (lambda s: two_slots(s, 4.9, at=5.5), promises.CROWDED),
    "another order than that of a key": (lambda s: (under(s, 1, 2), s.run(2, 2), s.run(1, 3)), promises.ORDER),
    "more starts than a rate allows": (lambda s: paced(s, 2.0, 2.1, 2.2), promises.RATE),
    "a rate after too short a pause": (lambda s: paced_twice(s, 3.5), promises.RATE),
    "a child before its parent": (lambda s: child(s, "done", 2.05), promises.EARLY),
    "a tolerant child before its parent": (lambda s: child(s, "done", 2.05, tolerant=True), promises.EARLY),
    "a child after a failure of its parent": (lambda s: child(s, "raised", 2.2), promises.EARLY),
    "a member that is stuck": (lambda s: (nodes(s, 1, 2, after={2: [1]}), s.run(1, 2)), promises.LOST),
    "a node that was enqueued twice": (
        lambda s: (nodes(s, 1), raised(s, 1, 2), s.run(1, 3, pid=12, delivery=2, seq=9)), promises.TWICE_QUEUED),
    "a job of a workflow that completes again": (
        lambda s: (nodes(s, 1), s.run(1, 2), s.run(1, 6.5, pid=12, delivery=2)), promises.AGAIN),
    "other values than the parents'": (
        lambda s: (nodes(s, 1), s.run(1, 2), s.say("took", 2.05, 1, False, who="11.x")), promises.INPUT),
    "a job that was claimed after it was cancelled": (lambda s: recalled(s, "recalled", 3.2), promises.RECALLED),
    "what could not be cancelled must run": (lambda s: recalled(s, "stays", None), promises.LOST),
    "two jobs of a unique key": (lambda s: unique(s, 4.0), promises.TWICE_QUEUED),
    "a doomed job that stays dead": (
        lambda s: (s.job(1, mode="doomed"), raised(s, 1, 2), s.say("dead", 95, 1)), promises.INNOCENT),
}  # fmt: skip


@pytest.mark.parametrize("what", STORIES)
def test_it_names_what_is_broken_and_nothing_else(story: Story, what: str) -> None:
    tell, promise = STORIES[what]
    tell(story)
    assert story.promise() == promise


def test_work_without_trouble_passes(story: Story) -> None:
    for number in range(1, 20):
        story.job(number, number)
        story.run(number, number + 0.05)
    story.job(20, end="undone")
    story.job(21, end="")
    assert story.clean() == {}


@pytest.mark.parametrize(("alone", "idle"), [(True, False), (False, False), (True, True)])
def test_no_job_while_every_worker_runs_a_suspect(story: Story, alone: bool, idle: bool) -> None:
    for number, pid in ((1, 11), (2, 12)):
        story.job(number)
        if not (idle and pid == 12):
            story.start(number, 2, pid=pid, alone=alone)
            story.end(number, 9, pid=pid)
        else:
            story.run(number, 2, pid=pid)
    story.say("back", 3, "restart", "")
    if alone and not idle:
        assert story.clean()["restart"].busy == 1
    else:
        assert story.promise() == promises.SLOW


def test_the_verdict_comes_while_it_goes_on(story: Story) -> None:
    story.job(1)
    story.start(1, 2)
    story.run(1, 6.5, pid=12, delivery=2)
    oracle = Oracle()
    oracle.hear(story.entries)
    assert not oracle.judge(7 * SECOND), "others may still have something to say"
    assert not oracle.judge(20 * SECOND), "an extension may still be read"
    oracle.hear([["upto", 21 * SECOND, "3.x", 20 * SECOND]])
    assert [one.promise for one in oracle.judge(21 * SECOND)] == [promises.OVERLAP]
    assert len(oracle.judge(22 * SECOND)) == 1


def test_what_is_long_done_is_forgotten_and_known_again(story: Story) -> None:
    oracle = Oracle()
    story.job(1)
    story.run(1, 2)
    oracle.hear(story.entries)
    oracle.judge(500 * SECOND)
    again = Story()
    again.run(1, 501, pid=12, delivery=2)
    again.read_claims(101, 102)
    oracle.hear(again.entries)
    assert oracle.finish(600 * SECOND) == []
    assert dict(oracle.rows[""].again) == {"long after its end": 1}
    assert oracle.waiting == 0


def test_the_plan_comes_from_the_seed_alone() -> None:
    assert plan(7, 5) == plan(7, 5) != plan(8, 5)
    server, crew = plan(7, 5)
    assert {step.fault for step in server} == {fault.name for fault in SERVER}
    assert {step.fault for step in crew} == {fault.name for fault in CREW}
    # What a machine cannot make is left out, and nothing else changes.
    left, _ = plan(7, 5, frozenset(["disk full"]))
    assert [step._replace(number=0) for step in left] == [
        step._replace(number=0) for step in server if step.fault != "disk full"
    ]
