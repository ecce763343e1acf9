"""The soak's oracle sees: made-up evidence with each broken promise is named, and clean evidence passes."""

from collections.abc import Callable

import pytest

from tests.soak import promises
from tests.soak.clock import place
from tests.soak.evidence import SECOND
from tests.soak.incidents import FEW, Incidents
from tests.soak.oracle import Oracle
from tests.soak.plan import CREW, SERVER, WORLD, plan
from tests.soak.sabotage import SABOTAGES, missing
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
    """The lease of the first claim is extended."""
    s.say("events", at, [[7, 1, 3, 101, round(at * SECOND), round((at + LEASE) * SECOND), [1]]], who="3.x")
    s.say("there", 91, "events", [[7, 7]])


def under(s: Story, *numbers: int, most: int = 1) -> None:
    """Jobs under a limit, in the order of their key."""
    s.say("under", 0.9, [[number, "key", most, True] for number in numbers], who="1.x")
    for number in numbers:
        s.job(number, mode="limited")


def nodes(s: Story, *numbers: int, after: dict[int, list[int]] | None = None, tolerant: bool = False) -> None:
    """Jobs of a workflow."""
    for number in numbers:
        s.job(number, mode="node")
    for number, parents in (after or {}).items():
        s.say("after", 0.9, [[number, parents, tolerant]], who="1.x")


def raised(s: Story, number: int, at: float, delivery: int = 1) -> None:
    s.start(number, at, delivery=delivery)
    s.end(number, at + 0.1, delivery=delivery, how="raised")


def two_runs(s: Story, told: float | None = None, mode: str = "plain", how: str = "done") -> None:
    """The second run begins while the first one goes on."""
    s.job(1, mode=mode)
    s.start(1, 2)
    if told is not None:
        s.told(1, told)
    s.run(1, 6.5, pid=12, delivery=2)
    s.end(1, 9, how=how)


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


def paced_for_long(s: Story, *, each: float, first_fault: float = 0.0) -> None:
    """Eight in four seconds may start; so many jobs wait that some do for a minute."""
    numbers = range(1, int(60 / each))
    s.say("paced", 1.9, list(numbers), 8, 4 * SECOND, who="1.x")
    for number in numbers:
        s.job(number, 1.95, mode="limited")
        s.run(number, 2 + number * each)
    if first_fault:
        fault(s, "restart", first_fault, first_fault + 60)


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


def recalled(s: Story, word: str, claimed: float | None, start: float = 3.3) -> None:
    """A job is cancelled; it was claimed at that time, or never."""
    s.job(1, mode="limited")
    s.say("recall", 2.8, [1], who="1.x")
    s.say(word, 3, [1], who="1.x")
    if claimed:
        s.run(1, start, claimed=claimed)


def unique(s: Story, ended: float) -> None:
    for number, at in ((1, 1.0), (2, 3.0)):
        s.job(number, at, mode="unique")
        s.say("unique", at + 0.1, number, "key", who="1.x")
    s.start(1, 2)
    s.end(1, ended)
    s.run(2, 5)


def dead_before_its_start(s: Story, *, met: bool = True) -> None:
    """The only lease of a job ends, perhaps by a fault, and what comes after it however it ends is started."""
    s.job(1, mode="forever")
    s.say("dead", 91, 1)
    nodes(s, 2, after={2: [1]}, tolerant=True)
    if met:
        fault(s, "worker hung", 1.5, 1.8, "worker1")
    s.run(2, 3)


def read_again(s: Story, back: int) -> None:
    """A reader is sent back, and gets a record once more."""
    s.say("reset", 2.5, "r1", "log", back, who="3.x")
    s.say("read", 3, "r1", "log", [[20, 2]], who="3.x")


def rolled_back_record(s: Story) -> None:
    topic(s, [1, 2], [1, 2, 3], [1, 2, 3])
    s.say("dropped", 1.2, "log", [3], who="1.x")
    # Written before the read is heard, as producers do.
    s.entries.insert(0, s.entries.pop())


def failover(s: Story, known: float = 1.5, ended: float = 3.0) -> None:
    s.say("failover", ended, round(known * SECOND), round(ended * SECOND))


def handed_over(s: Story, known: float, claimed: float = 1.99, again: float = 3.5) -> None:
    """A job runs, a server takes over that had seen all up to some moment, and another worker runs the job."""
    s.job(1)
    s.start(1, 2, claimed=claimed)
    failover(s, known)
    s.run(1, again, pid=12, delivery=2)


def acked(s: Story, outcome: str, *, before: bool, lost: bool = False) -> None:
    """A consumer acks late, before or after another has claimed its job."""
    s.job(1, mode="late")
    s.start(1, 2)
    s.end(1, 8 if before else 6.8, how="done" if outcome == "ok" else "stopped")
    at = 8.0 if before else 6.8
    s.say("acked", at, 1, 101, round(1.99 * SECOND), round((at - 0.1) * SECOND), outcome, who="11.x")
    if lost:
        failover(s, 6.5, 6.9)
    s.run(1, 7, pid=12, delivery=2)


def crashed(s: Story, queue: str) -> None:
    """A crash takes a lease back, and another worker runs the job."""
    s.job(1)
    s.start(1, 2, queue=queue)
    s.say("crash", 2.5)
    s.run(1, 3, pid=12, queue=queue)
    s.end(1, 4)


#: What happened, the calls that tell it, and the promise that it breaks.
STORIES: dict[str, tuple[Callable[[Story], object], str | None]] = {
    "a committed job that never ran": (lambda s: s.job(1), promises.LOST),
    "a committed job that never came to its end": (
        lambda s: (s.job(1), s.start(1, 2), s.say("kill", 2.5, 11, "worker killed")), promises.LOST),
    "a run after a rollback": (lambda s: (s.job(1, end="undone"), s.run(1, 2)), promises.ROLLED_BACK),
    "a run after a commit in doubt": (lambda s: (s.job(1, end=""), s.run(1, 2)), None),
    "a job from nowhere": (lambda s: s.run(1, 2), promises.UNKNOWN),
    "a start on an expired lease": (lambda s: (s.job(1), s.run(1, 7, claimed=2)), promises.LATE),
    "a start on an extended lease": (lambda s: (s.job(1), extended(s, 5), s.run(1, 7, claimed=2)), None),
    "a lease that was extended too late": (lambda s: (s.job(1), extended(s, 8), s.run(1, 7, claimed=2)), promises.LATE),
    "a start after a later delivery": (
        lambda s: (s.job(1), s.run(1, 3, pid=12, delivery=2), s.run(1, 3.5, claimed=1.5)), promises.LATE),
    "a start of a thread that was stopped on the way": (
        lambda s: (s.job(1), stopped(s), s.run(1, 8.01, claimed=2)), None),
    "a late start after a stop": (
        lambda s: (s.job(1), s.job(2), s.start(2, 1.9), stopped(s), s.end(2, 8.001), s.run(1, 8.01, claimed=2)),
        promises.LATE),
    "two runs at once": (two_runs, promises.OVERLAP),
    "two runs at once of a workflow's job": (lambda s: two_runs(s, mode="node", how="raised"), promises.OVERLAP),
    "a run whose function was not called": (lambda s: two_runs(s, mode="node", how="unbegun"), None),
    "two runs at once, told too late": (lambda s: two_runs(s, 5.5), promises.OVERLAP),
    "two runs at once of a stopped process": (
        lambda s: (s.job(1), fault(s, "stop", 2.5, 9, "worker1"), s.start(1, 2), s.say("stop", 2.5, 11, "stop"),
                   s.run(1, 6.5, pid=12, delivery=2), s.say("cont", 9, 11, "stop"), s.end(1, 9.1)), None),
    "a crash may take a lease back that did not wait for the disk": (lambda s: crashed(s, "swift"), None),
    "a crash takes no durable lease back": (lambda s: crashed(s, "sure"), promises.OVERLAP),
    "a dead innocent": (lambda s: (s.job(1), s.start(1, 2), s.say("dead", 95, 1)), promises.INNOCENT),
    "a dead poison": (
        lambda s: (s.job(1, mode="poison"), s.start(1, 2), s.say("last", 2.1, 1, 101, "exit", who="11.x"),
                   s.say("dead", 95, 1)), None),
    "a poison that is gone": (lambda s: (s.job(1, mode="poison"), s.start(1, 2)), promises.LOST),
    "two jobs of one key": (
        lambda s: (s.job(1, mode="keyed"), s.run(1, 2, seq=7), s.run(1, 3, delivery=2, seq=8)), promises.TWICE_QUEUED),
    "a wrong answer": (lambda s: (s.job(1), s.run(1, 2), s.say("answer", 2.2, 1, False, who="1.x")), promises.WRONG),
    "every record was read once": (lambda s: topic(s, [1, 2, 3], [1, 2, 3], [1, 2, 3]), None),
    "a record that was skipped": (lambda s: topic(s, [1, 2, 3], [1, 2, 3], [1, 3]), promises.SKIPPED),
    "a record that came again": (lambda s: topic(s, [1, 2, 3], [1, 2, 3], [1, 2, 2, 3]), promises.REPEATED),
    "a record out of order": (lambda s: topic(s, [1, 2, 3], [1, 2, 3], [1, 3, 2]), promises.REPEATED),
    "a durable record that a crash took": (lambda s: topic(s, [1, 2, 3], [1, 2], [1, 2]), promises.SKIPPED),
    "a record that a crash may take": (lambda s: topic(s, [1, 2, 3], [1, 2], [1, 2], "fast"), None),
    "a record that was told and taken back": (
        lambda s: topic(s, [1, 2, 3], [1, 2], [1, 2, 3], "fast"), promises.TAKEN_BACK),
    "a reader that is sent back without a failover": (
        lambda s: (topic(s, [1, 2], [1, 2], [1, 2]), read_again(s, 10)), promises.REPEATED),
    "a reader that is sent back by a failover": (
        lambda s: (fault(s, "lossy failover", 2.1, 2.4), topic(s, [1, 2], [1, 2], [1, 2]), read_again(s, 10)), None),
    "a reader that is sent back by a failover, and gets what it has confirmed": (
        lambda s: (fault(s, "lossy failover", 2.1, 2.4), topic(s, [1, 2], [1, 2], [1, 2]), read_again(s, 20)),
        promises.REPEATED),
    "a record that was rolled back": (rolled_back_record, promises.TAKEN_BACK),
    "an event that was skipped": (lambda s: s.say("there", 91, "events", [[500, 500]]), promises.SKIPPED),
    "an event that came again": (
        lambda s: s.say("events", 89, [[101, 1, 2, 101, 0, 0, [1]]], who="3.x"), promises.REPEATED),
    "a claim that the stream never told": (lambda s: (s.job(1), s.run(1, 2, delivery=7)), promises.SKIPPED),
    "a slow return": (
        lambda s: (s.job(1), fault(s, "restart", 2, 3), s.say("back", 3, "restart", ""), s.run(1, 6.1)), promises.SLOW),
    "no return at all": (lambda s: s.say("back", 3, "restart", ""), promises.SLOW),
    "what the last look finds": (lambda s: s.say("differs", 95, "1 job is left in sure"), promises.INCONSISTENT),
    # Limits, workflows and unique tasks.
    "one of a key after the other": (
        lambda s: (under(s, 1, 2, 3), *(s.run(number, number + 1) for number in (1, 2, 3))), None),
    "as many of a key as its limit allows": (
        lambda s: (under(s, 1, 2, most=2), s.start(1, 2), s.run(2, 2.1, pid=12), s.end(1, 3)), None),
    "more of a key than its limit allows": (
        lambda s: (under(s, 1, 2), s.start(1, 2), s.run(2, 2.1, pid=12), s.end(1, 3)), promises.CROWDED),
    "a slot whose lease ends, and nobody told it": (two_slots, promises.CROWDED),
    "a slot that was told, and has its lease still": (lambda s: two_slots(s, 4.9, at=5.5), promises.CROWDED),
    "a slot that was told, and whose lease has ended": (lambda s: two_slots(s, 4.9), None),
    "a slot of a worker that ends": (
        lambda s: (under(s, 1, 2), s.start(1, 2), s.say("told", 3, 1, 101, "stopping", who="11.x"),
                   s.run(2, 3.5, pid=12), s.end(1, 9)), None),
    "a slot of a stopped process": (
        lambda s: (under(s, 1, 2), s.start(1, 2), s.say("stop", 2.5, 11, "stop"), s.run(2, 6.5, pid=12),
                   s.say("cont", 9, 11, "stop"), s.end(1, 9.1)), None),
    "a slot of a killed process": (
        lambda s: (under(s, 1, 2), s.start(1, 2), s.say("kill", 2.5, 11, "worker killed"),
                   s.run(1, 3, pid=12, delivery=2), s.run(2, 4, pid=12)), None),
    "another order than that of a key": (lambda s: (under(s, 1, 2), s.run(2, 2), s.run(1, 3)), promises.ORDER),
    "another order, as a suspect ran alone": (
        lambda s: (under(s, 1, 2), s.run(2, 2), s.run(1, 3, alone=True)), None),
    "a rate": (lambda s: paced(s, 2.0, 2.3, 2.6), None),
    "more starts than a rate allows": (lambda s: paced(s, 2.0, 2.1, 2.2), promises.RATE),
    "a rate after a pause": (paced_twice, None),
    "a rate that is kept": (lambda s: paced_for_long(s, each=0.51), None),
    "a rate that starves": (lambda s: paced_for_long(s, each=0.6), promises.STARVED),
    "a rate that starves in a fault": (lambda s: paced_for_long(s, each=0.6, first_fault=3), None),
    "a rate after too short a pause": (lambda s: paced_twice(s, 3.5), promises.RATE),
    "a child after its parents": (
        lambda s: (nodes(s, 1, 2, 3, after={3: [1, 2]}), s.run(1, 2), s.run(2, 2), s.run(3, 2.2)), None),
    "a child before its parent": (lambda s: child(s, "done", 2.05), promises.EARLY),
    "a tolerant child before its parent": (lambda s: child(s, "done", 2.05, tolerant=True), promises.EARLY),
    "a child after a failure of its parent": (lambda s: child(s, "raised", 2.2), promises.EARLY),
    "a tolerant child of a job that never ran": (lambda s: dead_before_its_start(s, met=False), promises.EARLY),
    "a tolerant child of a job that a fault kept from its only start": (dead_before_its_start, None),
    "a tolerant child after a failure of its parent": (lambda s: child(s, "raised", 2.2, tolerant=True), None),
    "what comes after a failure need not run": (
        lambda s: (s.job(1, mode="forever"), s.job(2, mode="never"), nodes(s, after={2: [1]}), raised(s, 1, 2),
                   s.say("dead", 95, 1)), None),
    "a member that is stuck": (lambda s: (nodes(s, 1, 2, after={2: [1]}), s.run(1, 2)), promises.LOST),
    "a node that was enqueued twice": (
        lambda s: (nodes(s, 1), raised(s, 1, 2), s.run(1, 3, pid=12, delivery=2, seq=9)), promises.TWICE_QUEUED),
    "a job of a workflow that completes again": (
        lambda s: (nodes(s, 1), s.run(1, 2), s.run(1, 6.5, pid=12, delivery=2)), promises.AGAIN),
    "a job of a workflow that completes again after a fault": (
        lambda s: (nodes(s, 1), s.run(1, 2), fault(s, "restart", 2.05, 2.5), s.run(1, 6.5, pid=12, delivery=2)), None),
    "other values than the parents'": (
        lambda s: (nodes(s, 1), s.run(1, 2), s.say("took", 2.05, 1, False, who="11.x")), promises.INPUT),
    "a job that was claimed before it was cancelled": (lambda s: recalled(s, "recalled", 2.9), None),
    "a job that was claimed after it was cancelled": (lambda s: recalled(s, "recalled", 3.2), promises.RECALLED),
    "what was cancelled need not run": (lambda s: recalled(s, "recalled", None), None),
    "what could not be cancelled must run": (lambda s: recalled(s, "stays", None), promises.LOST),
    "a unique key after the end of its job": (lambda s: unique(s, 2.1), None),
    "two jobs of a unique key": (lambda s: unique(s, 4.0), promises.TWICE_QUEUED),
    "a job that an operator tried again begins to count anew": (
        lambda s: (s.job(1, mode="doomed"), raised(s, 1, 2), raised(s, 1, 3, delivery=2), s.run(1, 5)), None),
    "a job that was lost with its server": (lambda s: (s.job(1, 2), failover(s)), None),
    "a poison that was lost with its server": (lambda s: (s.job(1, 2, mode="poison"), failover(s)), None),
    "a poison that the other server had": (lambda s: (s.job(1, 1, mode="poison"), failover(s)), promises.LOST),
    "a poison of the other server": (lambda s: (s.job(1, 3.1, mode="poison"), failover(s)), promises.LOST),
    "a job that the other server had": (lambda s: (s.job(1, 1), failover(s)), promises.LOST),
    "a job of the other server": (lambda s: (s.job(1, 3.1), failover(s)), promises.LOST),
    "a claim that was lost with its server": (lambda s: handed_over(s, 1.5), None),
    "a claim that the other server had": (lambda s: handed_over(s, 3.0), promises.OVERLAP),
    "a record that was lost with its server": (
        lambda s: (s.say("put", 1.9, "log", [2], who="1.x"), topic(s, [1, 2], [1], [1]), failover(s, 0.9)), None),
    "a lease that a clock ended": (
        lambda s: (s.job(1), s.start(1, 2), s.say("stepped", 2.5, 10 * SECOND), s.run(1, 3, pid=12, delivery=2)), None),
    "a lease while a clock went back": (
        lambda s: (s.job(1), s.start(1, 2), s.say("stepped", 2.5, -10 * SECOND), s.run(1, 3, pid=12, delivery=2)),
        promises.OVERLAP),
    "starts of two windows that a clock made one": (
        lambda s: (paced_twice(s, 3.0), s.say("stepped", 2.97, 10 * SECOND)), None),
    "a claim from a paused queue": (
        lambda s: (s.job(1), s.say("paused", 1.5, "sure"), s.run(1, 2), s.say("resumed", 3, "sure")), promises.PAUSED),
    "a claim from a resumed queue": (
        lambda s: (s.job(1), s.say("paused", 1.2, "sure"), s.say("resumed", 1.5, "sure"), s.run(1, 2)), None),
    "a late ack": (lambda s: (acked(s, "ok", before=True), s.entries.pop(), s.entries.pop()), None),
    "a late ack that is refused": (lambda s: acked(s, "not_held", before=True), None),
    "a late ack of a job that another has": (lambda s: acked(s, "ok", before=True), promises.ACCEPTED),
    "a job that comes after its ack": (lambda s: acked(s, "ok", before=False), promises.ACCEPTED),
    "an ack that was lost with its server": (lambda s: acked(s, "ok", before=False, lost=True), None),
    "an ack under another token": (
        lambda s: (s.job(1, mode="late"), s.run(1, 2), s.say("forged", 2.05, 1, "ack", "ok")), promises.FORGED),
    "a start soon after a cancel": (lambda s: recalled(s, "recalled", 2.9, start=3.9), None),
    "a start long after a cancel": (lambda s: recalled(s, "recalled", 2.9, start=4.2), promises.RECALLED),
    "a start long after a cancel that its worker did not hear": (
        lambda s: (fault(s, "worker hung", 2.5, 4, "worker1"), recalled(s, "recalled", 2.9, start=4.2)), None),
    "a doomed job that stays dead": (
        lambda s: (s.job(1, mode="doomed"), raised(s, 1, 2), s.say("dead", 95, 1)), promises.INNOCENT),
}  # fmt: skip


@pytest.mark.parametrize("what", STORIES)
def test_it_names_what_is_broken_and_nothing_else(story: Story, what: str) -> None:
    tell, promise = STORIES[what]
    tell(story)
    if promise is None:
        story.clean()
    else:
        assert story.promise() == promise


def test_work_without_trouble_passes(story: Story) -> None:
    for number in range(1, 20):
        story.job(number, number)
        story.run(number, number + 0.05)
    story.job(20, end="undone")
    story.job(21, end="")
    assert story.clean() == {}


def test_why_a_job_ran_again(story: Story) -> None:
    fault(story, "hang", 2.2, 6, "worker1")
    two_runs(story, 4.9)
    assert dict(story.clean()["hang"].again) == {"it was told, and went on": 1}


@pytest.mark.parametrize("name", ["worker killed", ""])
def test_a_second_run_after_a_death_that_was_made_or_only_noticed(story: Story, name: str) -> None:
    story.job(1)
    if name:
        fault(story, name, 2.5, 2.6, "worker1")
    story.start(1, 2)
    if name:
        story.say("kill", 2.5, 11, name)
    story.run(1, 3, pid=12, delivery=2)
    if not name:
        story.say("died", 3.4, 11, "")
    assert dict(story.clean()[name].again) == {"its process died": 1}


@pytest.mark.parametrize(("suspects", "idle"), [(True, False), (False, False), (True, True)])
def test_no_job_while_suspects_have_all_threads_of_every_worker(story: Story, suspects: bool, idle: bool) -> None:
    for number in range(1, 7):
        story.job(number)
        pid = 11 + number % 2
        if idle and number == 6:
            story.run(number, 2, pid=pid)
        else:
            story.start(number, 2, pid=pid, alone=suspects)
            story.end(number, 9, pid=pid)
    story.say("back", 3, "restart", "")
    if suspects and not idle:
        assert story.clean()["restart"].busy == 1
    else:
        assert story.promise() == promises.SLOW


@pytest.mark.parametrize(("times", "isolates"), [(1, True), (2, False), (2, True)])
def test_a_job_ends_one_worker_at_most(story: Story, times: int, isolates: bool) -> None:
    story.job(1, mode="poison")
    for time in range(1, times + 1):
        story.start(1, time, pid=10 + time, delivery=time)
        story.say("last", time + 0.1, 1, 100 + time, "task: exit", isolates, who=f"{10 + time}.x")
    found = {one.promise for one in story.verdict().broken}
    assert (promises.HARM in found) == (times > 1 and isolates)


def test_a_quick_return(story: Story) -> None:
    story.job(1)
    story.say("back", 3, "restart", "")
    story.say("back", 3, "kill", "worker2")
    story.run(1, 3.25)
    rows = story.clean()
    assert [round(took / SECOND, 2) for took in rows["restart"].recoveries] == [0.25]
    assert rows["kill"].recoveries == []


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


def test_a_job_that_is_done_before_a_stopped_process_starts_it(story: Story) -> None:
    story.job(1)
    stopped(story)
    story.run(1, 6.5, pid=12, delivery=2, claimed=6.4)
    story.start(1, 8.05, claimed=1.9)
    story.end(1, 8.06, how="stopped")
    story.read_claims(101, 102)
    oracle = Oracle(workers=["worker1"])
    oracle.hear(story.entries)
    assert oracle.finish(60 * SECOND) == []


def test_a_time_of_the_server_is_found_across_body_of_its_clock() -> None:
    steps = [(0, 0), (100 * SECOND, 30 * SECOND), (200 * SECOND, -5 * SECOND)]
    for now in (50, 120, 150, 199, 220, 300):
        offset = 0 if now < 100 else 30 if now < 200 else -5
        known = [step for step in steps if step[0] <= now * SECOND]
        assert place((now + offset) * SECOND, known, now * SECOND) == now * SECOND
    assert place(200 * SECOND + 30_050_000_000, steps, 201 * SECOND) == 200_050_000_000, "the step came a little late"
    assert place(205 * SECOND, steps, 203 * SECOND) == 175 * SECOND, "not in the future, so before it was set back"


def test_each_sabotage_stands_in_the_code() -> None:
    assert len(SABOTAGES) >= 15
    assert [text for sabotage in SABOTAGES for text in missing(sabotage)] == []


def test_a_record_that_one_reader_got_and_another_went_past() -> None:
    oracle = Oracle(sure=["log"], readers=["r1", "r2"])
    oracle.hear([["read", 1, "3.x", "r1", "log", [[2, 20]]], ["read", 2, "3.x", "r2", "log", [[2, 20]]]])
    assert not oracle.broken
    oracle.hear([["read", 3, "3.x", "r1", "log", [[4, 40]]], ["read", 4, "3.x", "r2", "log", [[3, 30], [4, 40]]]])
    assert [one.promise for one in oracle.broken] == [promises.SKIPPED]


def test_the_plan_comes_from_the_seed_alone() -> None:
    assert plan(7, 5) == plan(7, 5) != plan(8, 5)
    server, crew, world = plan(7, 5)
    assert {step.fault for step in server} == {fault.name for fault in SERVER}
    assert {step.fault for step in crew} == {fault.name for fault in CREW}
    # What a machine cannot make is left out, and nothing else changes.
    assert {step.fault for step in world} == {fault.name for fault in WORLD}
    left, *_ = plan(7, 5, ["disk full"])
    assert [step._replace(number=0) for step in left] == [
        step._replace(number=0) for step in server if step.fault != "disk full"
    ]


def test_no_rate_is_measured_where_the_machine_has_no_time() -> None:
    incidents = Incidents()
    incidents.crowded += [number * SECOND for number in range(FEW + 1)]
    assert not incidents.calm(0, FEW * SECOND)
    assert incidents.calm(SECOND, FEW * SECOND)
    incidents.fault(0, 1, "snapshot held", "begin", [])
    assert incidents.calm(SECOND, FEW * SECOND)
    incidents.fault(0, 2, "worker killed", "begin", ["worker1"])
    assert not incidents.calm(SECOND, FEW * SECOND)
