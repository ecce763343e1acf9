"""Redrive: dead letters back to a live queue, in place, home, or elsewhere."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_leasequeue import engine, models
from django_leasequeue.engine import Failure, NewJob, Redriven, Release
from django_leasequeue.engine.dead.action import act, edit_and_retry
from django_leasequeue.enums import JobFlag
from django_leasequeue.exceptions import QueueNotFound
from django_leasequeue.models import Attempt, DeadLetter, FloorKind, JobEvent, JobState, LiveJob, Queue, QueueFloor
from tests.support.rows import rows

from . import helpers
from .helpers import NODE, claim, counts, enqueue, give_back, kinds, last_event, make, one, put, seqs, state

pytestmark = pytest.mark.django_db


def kill(queue: str = "work") -> None:
    for job in claim(1_000, queue):
        give_back(job, 0, Failure("app.Broken", "no", "", "fp"))
    claim(1_000, queue)


def redrive(numbers: list[int], queue: str = "work", **call) -> list[Redriven]:
    return engine.run(engine.redrive(queue, numbers, **call))


class TestInPlace:
    @pytest.fixture(autouse=True)
    def _queue(self, db: None) -> None:
        make("work", max_deliveries=1, exhaust_at="release", dead_letter="self", dead_ttl_ms=60_000)

    def test_deliveries_start_again_at_the_back(self, clock) -> None:
        dead = put(2, priority=5)
        kill()
        assert counts()["dead"] == 2
        waiting = put(1, priority=5)
        answers = redrive(dead)
        assert answers == [Redriven(number, "ready", number) for number in dead]
        jobs = claim(9)
        assert seqs(jobs) == [*waiting, *dead]
        assert [job.deliveries for job in jobs] == [1, 1, 1]
        assert [error["type"] for error in jobs[1].errors] == ["app.Broken"]
        assert kinds(dead[0])[-2:] == ["redriven", "claimed"]
        assert (counts()["dead"], counts()["dead_lettered"]) == (0, 2)
        row = LiveJob.objects.get(pk=dead[0])
        assert (row.expires_at, row.dead_at, row.state) == (None, None, JobState.LEASED)
        engine.run(engine.nack([dead[0]], NODE))
        assert (state(dead[0]), counts()["dead_lettered"]) == ("dead", 3), "it can die again"

    def test_with_delays_for_all_or_each(self, clock) -> None:
        dead = put(4)
        kill()
        wanted = zip(dead[2::-1], ("delayed", "ready", "ready"), strict=True)
        answers = redrive(dead[2::-1], delay_ms=[2_000, None, 0])
        assert answers == [Redriven(number, where, number) for number, where in wanted]
        assert redrive(dead[3:], delay_ms=10**15)[0].state == "delayed"
        later = [LiveJob.objects.get(pk=number).available_at - clock.now for number in dead[2:]]
        assert later == [timedelta(seconds=2), timedelta(days=1)]
        assert sorted(seqs(claim(5))) == dead[:2]
        clock.advance(seconds=2)
        assert seqs(claim(5)) == dead[2:3]

    def test_what_is_not_dead_is_not_found_and_twice_is_once(self) -> None:
        dead = put()
        kill()
        ready, leased = put(2)[::-1]
        assert one().seq == leased
        make("other", max_deliveries=1, exhaust_at="release", dead_letter="self")
        elsewhere = put(queue="other")
        kill("other")
        make("work", project="acme")
        assert [answer.state for answer in redrive(dead, project="acme")] == ["not_found"]
        answers = redrive([ready, leased, 10**12, *elsewhere, *dead * 2])
        told = [(answer.state, answer.new_seq) for answer in answers]
        assert told == [("not_found", None)] * 4 + [("ready", dead[0])]
        assert [answer.state for answer in redrive(dead)] == ["not_found"]
        assert kinds(dead[0]).count("redriven") == 1
        assert (state(ready), state(leased), state(elsewhere[0])) == ("ready", "leased", "dead")

    def test_to_another_queue(self) -> None:
        make("repair")
        (dead,) = enqueue(NewJob(data=1, key="k", tag="t", meta={"m": 1}, name="n", body=b"b", priority=3))
        kill()
        (answer,) = redrive([dead.seq], to="repair")
        assert (answer.seq, answer.state) == (dead.seq, "ready")
        assert answer.new_seq != dead.seq
        job = one("repair")
        assert (job.seq, job.deliveries, job.data, job.key, job.tag) == (answer.new_seq, 1, 1, "k", "t")
        assert (job.meta, job.name, job.body) == ({"m": 1}, "n", b"b")
        assert [error["type"] for error in job.errors] == ["app.Broken"]
        assert not models.StoredJob.objects.filter(pk=dead.seq).exists()
        assert not DeadLetter.objects.exists()
        assert set(Attempt.objects.values_list("seq", "queue__name")) == {(answer.new_seq, "repair")}
        assert QueueFloor.objects.get(queue__name="work", kind=FloorKind.HEAD).value == dead.seq
        assert kinds(dead.seq)[-1] == "redriven"
        assert last_event(dead.seq).detail == {"to": "repair", "to_seq": answer.new_seq}
        assert JobEvent.objects.get(seq=answer.new_seq, kind=1).detail == {"redriven_from": dead.seq}

    @pytest.mark.parametrize(("options", "taken"), [
        ({}, True), ({"result_ttl_ms": 60_000, "dedup_until": "result_ttl"}, True), ({"result_ttl_ms": 60_000}, False),
        ({"dedup_until": "claimed"}, False),
    ], ids=str)  # fmt: skip
    def test_a_key_is_a_conflict_there_while_it_is_kept(self, options: dict[str, Any], taken: bool) -> None:
        make("repair", **options)
        enqueue(NewJob(key="k"), queue="repair")
        if options:
            job = one("repair")
        if "result_ttl_ms" in options:
            engine.run(engine.ack([job.seq], NODE))
        dead, free = seqs(enqueue(NewJob(key="k"), NewJob(key="other")))
        kill()
        answers = redrive([dead, free], to="repair")
        assert [answer.state for answer in answers] == ["conflict" if taken else "ready", "ready"]
        assert (state(dead), state(free)) == ("dead" if taken else None, None)
        assert {job.key for job in claim(5, "repair")} >= ({"other"} if taken else {"other", "k"})


class TestFromATopic:
    @pytest.fixture(autouse=True)
    def _queue(self, db: None) -> None:
        make("work", max_deliveries=1, dead_letter="graveyard")
        make("other", max_deliveries=1, dead_letter="graveyard")

    def letters(self) -> list[int]:
        return list(LiveJob.objects.filter(queue__name="graveyard").order_by("seq").values_list("seq", flat=True))

    def test_home_or_elsewhere(self) -> None:
        enqueue(NewJob(data="w", key="k", meta={"trace": 1}, priority=9), NewJob(data="low", priority=1))
        (thrice,) = seqs(enqueue(NewJob(data="third", max_deliveries=3, result_ttl_ms=9_000, reply_to="me")))
        kill()
        engine.run(engine.nack([thrice], NODE))
        kill()
        letter, low, third = self.letters()
        (record,) = put(queue="graveyard")
        answers = redrive([10**12, record, letter, low], "graveyard", to="work")
        assert [answer.state for answer in answers] == ["not_found", "not_found", "ready", "ready"]
        put(1, priority=5)
        job, *rest = claim(9)
        assert (job.data, job.key, job.deliveries, job.meta["trace"]) == ("w", "k", 1, 1)
        assert [job.data for job in rest] == [0, "low"]
        assert job.seq == answers[2].new_seq
        (answer,) = redrive([third], "graveyard", to="other")
        assert one("other").seq == answer.new_seq
        row = LiveJob.objects.get(pk=answer.new_seq)
        assert (row.max_deliveries, row.result_ttl_ms) == (3, 9_000), "the job's options stay"
        assert (self.letters(), state(record)) == ([record], "record")

    def test_home_is_gone(self) -> None:
        put()
        kill()
        engine.run(engine.delete("work"))
        letters = self.letters()
        with pytest.raises(QueueNotFound, match="work"):
            redrive(letters, "graveyard", to="work")
        assert self.letters() == letters

    def test_letters_in_a_queue(self) -> None:
        rows(Queue).filter(name="graveyard").delete()
        make("graveyard")
        put(2)
        kill()
        first, second = self.letters()
        held = one("graveyard")
        assert held.seq == first
        answers = redrive([first, second], "graveyard", to="work")
        assert [answer.state for answer in answers] == ["not_found", "ready"]
        assert engine.run(engine.ack([held.seq], NODE)).ok == [first]
        assert len(claim(5)) == 1


@pytest.mark.django_db(transaction=True)
class TestAnEqualKeyAtTheSameTime:
    @pytest.fixture(autouse=True)
    def _queues(self, transactional_db: None) -> None:
        make("work", max_deliveries=1, exhaust_at="release", dead_letter="self")
        make("repair")

    def meet(self, work: Callable[[engine.ConnectionExecutor], Any], *, commits: bool, queue: str = "repair") -> Any:
        """Enqueue the twin, run ``work`` until it waits for it, end the twin's transaction; return what work gave."""
        with helpers.open_transaction() as twin:
            twin.run(engine.enqueue(queue, [NewJob(data="twin", key="k")]))
            with helpers.kept_waiting(work) as answer:
                twin.connection.commit() if commits else twin.connection.rollback()
            return answer.result()

    @pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
    @pytest.mark.parametrize("bulk", [True, False])
    def test_redrive(self, commits: bool, bulk: bool) -> None:
        dead, other = seqs(enqueue(NewJob(data="letter", key="k"), NewJob(key="other")))
        kill()
        numbers = [dead, other]
        redrive = act("redrive", numbers, to="repair") if bulk else engine.redrive("work", numbers, to="repair")
        done = self.meet(lambda own: own.run(redrive), commits=commits)
        if bulk:
            assert (done.done, done.conflicts) == ((1, [(dead, "key_taken")]) if commits else (2, []))
        else:
            assert [answer.state for answer in done] == ["conflict" if commits else "ready", "ready"]
        assert state(dead) == ("dead" if commits else None)
        assert LiveJob.objects.get(key="k", queue__name="repair").data == ("twin" if commits else "letter")

    @pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
    @pytest.mark.parametrize("kind", ["log", "queue"])
    def test_move_at_the_release(self, kind: str, commits: bool) -> None:
        make("graveyard", type=kind)
        engine.run(engine.configure("work", max_deliveries=1, exhaust_at="release", dead_letter="graveyard"))
        numbers = seqs(enqueue(NewJob(data="letter", key="k"), NewJob(data="other")))
        jobs = claim(2)

        def release(own: engine.ConnectionExecutor) -> engine.Settled:
            return own.run(engine.release([Release(job.seq, job.token) for job in jobs], NODE))

        settled = self.meet(release, commits=commits, queue="graveyard")
        assert [settled.released[number].state for number in numbers] == ["dead", "dead"]
        there = LiveJob.objects.filter(queue__name="graveyard", source_seq__in=numbers).order_by("source_seq")
        told = [(letter.data, letter.key) for letter in there]
        assert told == [("letter", None if commits else "k"), ("other", None)]
        assert counts()["dead_lettered"] == 2
        assert [state(number) for number in numbers] == [None, None]

    def test_move_at_the_claim(self) -> None:
        make("graveyard")
        engine.run(engine.configure("work", max_deliveries=1, exhaust_at="claim", dead_letter="graveyard"))
        enqueue(NewJob(data="letter", key="k"), NewJob(data="good"))
        engine.run(engine.nack([one().seq], NODE))
        jobs = self.meet(lambda own: own.run(engine.claim("work", NODE)), commits=True, queue="graveyard")
        assert [job.data for job in jobs] == ["good"]
        assert [(job.data, job.key) for job in claim(5, "graveyard")] == [("twin", "k"), ("letter", None)]

    def test_edit(self) -> None:
        make("letters", type="log")
        engine.run(engine.configure("work", max_deliveries=1, exhaust_at="release", dead_letter="letters"))
        enqueue(NewJob(data="letter", key="k"))
        kill()
        letter = LiveJob.objects.get(queue__name="letters")
        edit = edit_and_retry("letters", letter.seq, data=2, dead_at=letter.dead_at)
        done = self.meet(lambda own: own.run(edit), commits=True, queue="work")
        assert done.conflict == "key_taken"
        assert (state(letter.seq), LiveJob.objects.get(pk=letter.seq).key) == ("record", "k")


@pytest.mark.parametrize("dead_letter", ["self", "letters"])
@pytest.mark.parametrize("size", [9, 20_000])
def test_claims_count_the_bytes_of_large_dead_letters(dead_letter: str, size: int) -> None:
    make("letters")
    make("work", max_deliveries=1, exhaust_at="release", dead_letter=dead_letter)
    (home,) = {"self": ["work"]}.get(dead_letter, [dead_letter])

    def flagged(*numbers: int | None) -> list[bool]:
        return [bool(row.flags & JobFlag.LARGE) for row in models.Ready.objects.filter(seq__in=numbers).order_by("seq")]

    enqueue(*[NewJob("x" * size)] * 2, NewJob(meta={"text": "x" * size}))
    kill()
    dead = sorted(LiveJob.objects.filter(queue__name=home).values_list("seq", flat=True))
    if dead_letter != "self":
        assert flagged(*dead) == [size > 9] * 3
    (moved,) = redrive(dead[2:], queue=home, to="work")
    letter = LiveJob.objects.get(pk=dead[1])
    edited = engine.run(edit_and_retry(home, letter.seq, data="y" * size, dead_at=letter.dead_at))
    assert [*flagged(moved.new_seq), *flagged(edited.seq)] == [size > 9] * 2
