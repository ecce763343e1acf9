"""The soak's oracle sees: made-up evidence with each broken promise is named, and clean evidence passes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.soak import promises
from tests.soak.evidence import SECOND, Tail, Witness
from tests.soak.oracle import Oracle
from tests.soak.plan import CREW, SERVER, plan
from tests.unit.soak_story import Story


@pytest.fixture
def story() -> Story:
    return Story()


def fault(story: Story, name: str, begin: float, end: float, *roles: str, number: int = 1) -> None:
    story.say("fault", begin, number, name, "begin", list(roles))
    story.say("fault", end, number, name, "end", list(roles))


def test_work_without_trouble_passes(story: Story) -> None:
    for number in range(1, 20):
        story.job(number, number)
        story.run(number, number + 0.05)
    story.job(20, end="undone")
    story.job(21, end="")
    assert story.clean() == {}


def test_a_committed_job_that_never_ran(story: Story) -> None:
    story.job(1)
    assert story.promise() == promises.LOST


def test_a_committed_job_that_never_came_to_its_end(story: Story) -> None:
    story.job(1)
    story.start(1, 2)
    story.say("kill", 2.5, 11, "worker killed")
    assert story.promise() == promises.LOST


def test_a_run_after_a_rollback(story: Story) -> None:
    story.job(1, end="undone")
    story.run(1, 2)
    assert story.promise() == promises.ROLLED_BACK


def test_a_run_after_a_commit_in_doubt(story: Story) -> None:
    story.job(1, end="")
    story.run(1, 2)
    story.clean()


def test_a_job_from_nowhere(story: Story) -> None:
    story.run(1, 2)
    assert story.promise() == promises.UNKNOWN


def test_a_start_on_an_expired_lease(story: Story) -> None:
    story.job(1)
    story.run(1, 7, claimed=2)
    assert story.promise() == promises.LATE


def test_a_start_on_an_extended_lease(story: Story) -> None:
    story.job(1)
    story.say("events", 5, [[7, 3, 101, 5 * SECOND, 9 * SECOND, [1]]], who="3.x")
    story.say("there", 91, "events", [[7, 7]])
    story.run(1, 7, claimed=2)
    story.clean()


def test_a_lease_that_was_extended_too_late(story: Story) -> None:
    story.job(1)
    story.say("events", 8, [[7, 3, 101, 8 * SECOND, 12 * SECOND, [1]]], who="3.x")
    story.say("there", 91, "events", [[7, 7]])
    story.run(1, 7, claimed=2)
    assert story.promise() == promises.LATE


def test_a_start_after_a_later_delivery(story: Story) -> None:
    story.job(1)
    story.run(1, 3, pid=12, delivery=2)
    story.run(1, 3.5, claimed=1.5)
    assert story.promise() == promises.LATE


def test_a_start_of_a_thread_that_was_stopped_on_the_way(story: Story) -> None:
    story.job(1)
    story.say("stop", 2.001, 11, "worker stopped")
    story.say("cont", 8, 11, "worker stopped")
    story.run(1, 8.01, claimed=2)
    story.clean()


def test_a_late_start_after_a_stop(story: Story) -> None:
    story.job(1)
    story.job(2)
    story.start(2, 1.9)
    story.say("stop", 2.001, 11, "worker stopped")
    story.say("cont", 8, 11, "worker stopped")
    story.end(2, 8.001)
    story.run(1, 8.01, claimed=2)
    assert story.promise() == promises.LATE


def test_two_runs_at_once(story: Story) -> None:
    story.job(1)
    story.start(1, 2)
    story.run(1, 6.5, pid=12, delivery=2)
    story.end(1, 9)
    assert story.promise() == promises.OVERLAP


def test_two_runs_at_once_told_too_late(story: Story) -> None:
    story.job(1)
    story.start(1, 2)
    story.told(1, 5.5)
    story.run(1, 6.5, pid=12, delivery=2)
    story.end(1, 9)
    assert story.promise() == promises.OVERLAP


def test_two_runs_at_once_told_in_time(story: Story) -> None:
    story.job(1)
    fault(story, "hang", 2.2, 6, "worker1")
    story.start(1, 2)
    story.told(1, 4.9)
    story.run(1, 6.5, pid=12, delivery=2)
    story.end(1, 9)
    assert dict(story.clean()["hang"].again) == {"it was told, and went on": 1}


def test_two_runs_at_once_of_a_stopped_process(story: Story) -> None:
    story.job(1)
    fault(story, "stop", 2.5, 9, "worker1")
    story.start(1, 2)
    story.say("stop", 2.5, 11, "stop")
    story.run(1, 6.5, pid=12, delivery=2)
    story.say("cont", 9, 11, "stop")
    story.end(1, 9.1)
    story.clean()


def test_a_second_run_after_a_death(story: Story) -> None:
    story.job(1)
    fault(story, "worker killed", 2.5, 2.6, "worker1")
    story.start(1, 2)
    story.say("kill", 2.5, 11, "worker killed")
    story.run(1, 3, pid=12, delivery=2)
    assert dict(story.clean()["worker killed"].again) == {"its process died": 1}


def test_a_second_run_after_a_death_that_was_only_noticed(story: Story) -> None:
    story.job(1)
    story.start(1, 2)
    story.run(1, 3, pid=12, delivery=2)
    story.say("died", 3.4, 11, "")
    assert dict(story.clean()[""].again) == {"its process died": 1}


def test_a_crash_may_take_a_lease_back_that_did_not_wait_for_the_disk(story: Story) -> None:
    story.job(1)
    story.start(1, 2, queue="swift")
    story.say("crash", 2.5)
    story.run(1, 3, pid=12, queue="swift")
    story.end(1, 4)
    story.clean()


def test_a_crash_takes_no_durable_lease_back(story: Story) -> None:
    story.job(1)
    story.start(1, 2)
    story.say("crash", 2.5)
    story.run(1, 3, pid=12)
    story.end(1, 4)
    assert story.promise() == promises.OVERLAP


def test_a_dead_innocent(story: Story) -> None:
    story.job(1)
    story.start(1, 2)
    story.say("dead", 95, 1)
    assert story.promise() == promises.INNOCENT


def test_a_dead_poison(story: Story) -> None:
    story.job(1, mode="poison")
    story.start(1, 2)
    story.say("last", 2.1, 1, 101, "exit", who="11.x")
    story.say("dead", 95, 1)
    story.clean()


def test_a_poison_that_is_gone(story: Story) -> None:
    story.job(1, mode="poison")
    story.start(1, 2)
    assert story.promise() == promises.LOST


def test_two_jobs_of_one_key(story: Story) -> None:
    story.job(1, mode="keyed")
    story.run(1, 2, seq=7)
    story.run(1, 3, delivery=2, seq=8)
    assert story.promise() == promises.TWICE_QUEUED


def test_a_wrong_answer(story: Story) -> None:
    story.job(1)
    story.run(1, 2)
    story.say("answer", 2.2, 1, False, who="1.x")
    assert story.promise() == promises.WRONG


def topic(story: Story, kept: list[int], there: list[int], read: list[int], name: str = "log") -> None:
    story.say("put", 1, name, kept, who="1.x")
    story.say("kept", 1.1, name, kept, who="1.x")
    story.say("read", 2, "r1", name, [[item * 10, item] for item in read], who="3.x")
    story.say("there", 92, name, [[item * 10, item] for item in there])


def test_every_record_was_read_once(story: Story) -> None:
    topic(story, [1, 2, 3], [1, 2, 3], [1, 2, 3])
    story.clean()


def test_a_record_that_was_skipped(story: Story) -> None:
    topic(story, [1, 2, 3], [1, 2, 3], [1, 3])
    assert story.promise() == promises.SKIPPED


def test_a_record_that_came_again(story: Story) -> None:
    topic(story, [1, 2, 3], [1, 2, 3], [1, 2, 2, 3])
    assert story.promise() == promises.REPEATED


def test_a_record_out_of_order(story: Story) -> None:
    topic(story, [1, 2, 3], [1, 2, 3], [1, 3, 2])
    assert story.promise() == promises.REPEATED


def test_a_durable_record_that_a_crash_took(story: Story) -> None:
    topic(story, [1, 2, 3], [1, 2], [1, 2])
    assert story.promise() == promises.SKIPPED


def test_a_record_that_a_crash_may_take(story: Story) -> None:
    topic(story, [1, 2, 3], [1, 2], [1, 2], name="fast")
    story.clean()


def test_a_record_that_was_told_and_taken_back(story: Story) -> None:
    topic(story, [1, 2, 3], [1, 2], [1, 2, 3], name="fast")
    assert story.promise() == promises.TAKEN_BACK


def test_a_record_that_was_rolled_back(story: Story) -> None:
    topic(story, [1, 2], [1, 2, 3], [1, 2, 3])
    story.say("dropped", 1.2, "log", [3], who="1.x")
    # Written before the read is heard, as producers do.
    story.entries.insert(0, story.entries.pop())
    assert story.promise() == promises.TAKEN_BACK


def test_an_event_that_was_skipped(story: Story) -> None:
    story.say("there", 91, "events", [[500, 500]])
    assert story.promise() == promises.SKIPPED


def test_an_event_that_came_again(story: Story) -> None:
    story.say("events", 89, [[101, 2, 101, 0, 0, [1]]], who="3.x")
    assert story.promise() == promises.REPEATED


def test_a_claim_that_the_stream_never_told(story: Story) -> None:
    story.job(1)
    story.run(1, 2, delivery=7)
    assert story.promise() == promises.SKIPPED


def test_a_slow_return(story: Story) -> None:
    story.job(1)
    fault(story, "restart", 2, 3)
    story.say("back", 3, "restart", "")
    story.run(1, 6.1)
    assert story.promise() == promises.SLOW


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


def test_no_return_at_all(story: Story) -> None:
    story.say("back", 3, "restart", "")
    assert story.promise() == promises.SLOW


def test_a_quick_return(story: Story) -> None:
    story.job(1)
    story.say("back", 3, "restart", "")
    story.say("back", 3, "kill", "worker2")
    story.run(1, 3.25)
    rows = story.clean()
    assert [round(took / SECOND, 2) for took in rows["restart"].recoveries] == [0.25]
    assert rows["kill"].recoveries == []


def test_what_the_last_look_finds(story: Story) -> None:
    story.say("differs", 95, "1 job is left in sure")
    assert story.promise() == promises.INCONSISTENT


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


def test_what_was_judged_is_not_judged_again_when_extensions_are_forgotten(story: Story) -> None:
    oracle = Oracle()
    story.job(1, mode="poison")
    story.say("events", 5, [[7, 3, 101, 5 * SECOND, 9 * SECOND, [1]]], who="3.x")
    story.run(1, 7, claimed=2)
    story.say("upto", 8, 8 * SECOND, who="3.x")
    oracle.hear(story.entries)
    assert not oracle.judge(20 * SECOND)
    assert not oracle.judge(500 * SECOND)
    oracle.hear([["dead", 501 * SECOND, "2.x", 1]])
    assert not oracle.judge(600 * SECOND)


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


def test_evidence_is_read_line_by_line(tmp_path: Any) -> None:
    witness = Witness(tmp_path, "test")
    tail = Tail(tmp_path)
    assert [entry[0] for entry in tail.look()] == ["hello"]
    witness.say("crash")
    path = next(tmp_path.iterdir())
    with path.open("ab") as file:
        file.write(b'["crash",1')
        file.flush()
        assert [entry[0] for entry in tail.look()] == ["crash"]
        file.write(b',"x"]\n')
    assert tail.look() == [["crash", 1, "x"]]
