"""Jobs that used up their deliveries: at the claim or at the release, in place or to another topic."""

from datetime import timedelta
from typing import Any

import pytest

from django_leasequeue import engine, models
from django_leasequeue.engine import Ending, Failure, NewJob, codec
from django_leasequeue.engine.dead.deadletter import retire_steps
from django_leasequeue.engine.dead.triage import dead_rows
from django_leasequeue.engine.leases import cohort
from django_leasequeue.exceptions import QueueFull
from django_leasequeue.models import Attempt, Claim, DeadLetter, Delayed, EventKind, JobFlag, JobState, LiveJob, Queue
from tests.support.rows import rows

from . import helpers
from .helpers import NODE, OTHER, claim, counts, delivered, enqueue, give_back, kinds, last_event, make, one, put, seqs

pytestmark = pytest.mark.django_db

BROKEN = Failure("app.Broken", "it broke", "Traceback ...", "broken-7")


def wear_out(times: int, queue: str = "work", failure: Failure | None = None) -> engine.LeasedJob:
    """Deliver the job at the head of the queue this often, each time giving it back at once."""
    for _ in range(times):
        job = one(queue)
        give_back(job, 0, failure)
    return job


def letters(topic: str = "graveyard") -> list[LiveJob]:
    return list(LiveJob.objects.filter(queue__name=topic).order_by("seq"))


def failures(job: LiveJob) -> list[str]:
    return list(Attempt.objects.filter(seq=job.seq).order_by("id").values_list("error_type", flat=True))


class TestWithoutALimit:
    @pytest.mark.parametrize("options", [
        {"max_deliveries": 0, "dead_letter": "graveyard"}, {"max_deliveries": 2, "dead_letter": None},
        {"max_deliveries": 2, "dead_letter": None, "exhaust_at": "release"},
        {"max_deliveries": 0, "dead_letter": "self", "exhaust_at": "release"},
    ], ids=repr)  # fmt: skip
    def test_it_is_redelivered_for_ever(self, clock, options: dict[str, Any]) -> None:
        make("work", **options)
        put()
        for delivery in range(1, 12):
            job = one()
            assert job.deliveries == delivery
            if delivery % 2:
                engine.run(engine.nack([job.seq], NODE))
            else:
                clock.advance(seconds=31)
        assert not Queue.objects.filter(name="graveyard").exists()


class TestAtTheClaim:
    """The (n+1)-th delivery does not happen; the job is moved instead, and the claim goes on."""

    @pytest.fixture(autouse=True)
    def _queue(self, db: None) -> None:
        make("work", max_deliveries=2, dead_letter="graveyard")

    def test_deliveries_one_and_two_and_then_the_letter(self, clock) -> None:
        job = NewJob(data={"n": 1}, tag="t", meta={"trace": "z"}, body=b"b", key="k", name="app.task")
        (poison,) = enqueue(job, origin="p")
        wear_out(2)
        assert helpers.state(poison.seq) == "ready"
        assert claim() == []
        assert helpers.state(poison.seq) is None
        (letter,) = letters()
        assert (letter.data, letter.tag, bytes(letter.body), letter.key) == ({"n": 1}, "t", b"b", "k")
        told = (letter.name, letter.origin, letter.error_type, letter.fingerprint)
        assert told == ("app.task", "p", "MAX_ATTEMPTS", "")
        assert letter.meta == {
            "trace": "z", "$dead_letter_from": "work", "$dead_letter_deliveries": 2,
            "$dead_letter_src_seq": poison.seq,
        }  # fmt: skip
        assert (letter.state, letter.deliveries, letter.dead_at) == (JobState.RECORD, 0, clock.now)
        assert (letter.source_queue, letter.source_seq) == (Queue.objects.get(name="work").pk, poison.seq)
        assert (counts()["dead_lettered"], Queue.objects.get(name="graveyard").type) == (1, "log")
        assert kinds(poison.seq)[-1] == "dead_lettered"
        detail = last_event(poison.seq).detail
        assert (detail["to"], detail["to_seq"], detail["error_type"]) == ("graveyard", letter.pk, "MAX_ATTEMPTS")
        assert last_event(poison.seq).deliveries == 2

    @pytest.mark.parametrize(("discard", "kept"), [("old", [3, 4]), ("reject", [0, 1, 2, 3, 4])])
    def test_a_target_with_a_cap_keeps_it_or_it_is_said(self, discard: str, kept: list[int], caplog: Any) -> None:
        make("graveyard", type="log", cap_records=2, discard=discard)
        put(5)
        for _ in range(5):
            wear_out(2)
        assert claim() == []
        assert [letter.data for letter in letters()] == kept
        assert ("is full: its cap is 2 records" in caplog.text) is (discard == "reject")
        if discard == "reject":
            with pytest.raises(QueueFull):
                put(1, queue="graveyard")

    def test_even_for_one_job_behind_thousands(self) -> None:
        put(2_500)
        delivered(2)
        good = put()
        assert seqs(claim(1)) == good
        assert len(letters()) == 2_500

    @pytest.mark.parametrize("call", [{"tag": "green"}, {"tags": ["blue", "green"]}], ids=str)
    def test_poison_with_the_tags_of_the_claim_behind_many_others(self, call: dict[str, Any]) -> None:
        put(1_200, tag="red")
        delivered(2, *put(5, tag="blue"), *put(5, tag="green"))
        good = put(3, tag="green")
        assert seqs(claim(5, **call)) == good

    def test_the_own_limit_of_a_job(self) -> None:
        (endless,) = enqueue(NewJob(max_deliveries=0, data="endless"))
        (once,) = enqueue(NewJob(max_deliveries=1, data="once"))
        (thrice,) = enqueue(NewJob(max_deliveries=3, data="thrice"))
        assert [job.max_deliveries for job in claim(3)] == [0, 1, 3]
        engine.run(engine.nack([endless.seq, once.seq, thrice.seq], NODE))
        for _ in range(5):
            engine.run(engine.nack(seqs(claim(3)), NODE))
        assert seqs(claim(3)) == [endless.seq]
        told = [(letter.data, letter.meta["$dead_letter_deliveries"]) for letter in letters()]
        assert told == [("once", 1), ("thrice", 3)]
        assert {once.seq, thrice.seq} == {letter.source_seq for letter in letters()}

    def test_a_letter_whose_key_is_taken_there_comes_without_it(self, clock) -> None:
        make("graveyard", type="log", ttl_ms=5_000)
        enqueue(NewJob(key="k"), queue="graveyard")
        enqueue(NewJob(key="k", ttl_ms=3_600_000))
        wear_out(2)
        claim()
        assert [letter.key for letter in letters()] == ["k", None]
        assert letters()[1].expires_at == clock.now + timedelta(seconds=5), "its life is that of its topic"

    def test_dead_in_place_at_the_claim(self, clock) -> None:
        engine.run(engine.configure("work", max_deliveries=2, dead_letter="self", dead_ttl_ms=5_000))
        poison, good = put(2)
        wear_out(2, failure=BROKEN)
        assert seqs(claim(2)) == [good]
        job = LiveJob.objects.get(pk=poison)
        assert (job.state, job.dead_at, job.expires_at) == (JobState.DEAD, clock.now, clock.now + timedelta(seconds=5))
        assert (job.error_type, job.fingerprint, failures(job)) == ("app.Broken", "broken-7", ["app.Broken"] * 2)
        assert (counts()["dead"], counts()["dead_lettered"], kinds(poison)[-1]) == (1, 1, "dead_lettered")


class TestAtTheRelease:
    """``max_deliveries`` executions; the job is dead when the last one ends."""

    @pytest.fixture(autouse=True)
    def _queue(self, db: None) -> None:
        make("work", max_deliveries=3, exhaust_at="release", dead_letter="self")

    def test_three_executions_and_no_more(self) -> None:
        (number,) = put()
        for delivery in (1, 2, 3):
            job = one()
            assert job.deliveries == delivery
            settled = give_back(job, 60_000, BROKEN)
            if delivery < 3:
                rows(Delayed).update(available_at="2020-01-01T00:00Z")
        assert settled.released[number] == ("dead", None, 3)
        assert claim() == []
        dead = LiveJob.objects.get()
        assert (dead.state, dead.node, dead.claim, dead.deadline) == (JobState.DEAD, None, None, None)
        assert (dead.error_type, dead.error, dead.fingerprint) == ("app.Broken", "it broke", "broken-7")
        assert (failures(dead), dead.available_at, dead.expires_at) == (["app.Broken"] * 3, None, None)
        assert kinds(number)[-2:] == ["released", "dead_lettered"]
        assert last_event(number).detail["fingerprint"] == "broken-7"
        assert (counts()["dead"], counts()["dead_lettered"]) == (1, 1)

    def test_a_failure_that_its_worker_calls_final_leaves_no_dead_letter(self) -> None:
        (number,) = put()
        job = one()
        engine.run(engine.finish([Ending(number, job.token, failure=BROKEN)], NODE))
        assert (counts()["dead"], counts()["dead_lettered"], helpers.state(number)) == (0, 0, None)

    @pytest.mark.parametrize("who", ["reaper", "claim", "deal"])
    def test_the_time_of_the_dead(self, clock, who: str) -> None:
        options = {"max_deliveries": 1, "exhaust_at": "release", "dead_letter": "self", "dead_ttl_ms": 9_000}
        engine.run(engine.configure("work", **options))
        (number,) = put(ttl_ms=3_600_000)
        wear_out(1, failure=BROKEN)
        assert LiveJob.objects.get().expires_at == clock.now + timedelta(seconds=9)
        clock.advance(seconds=8)
        (later,) = put()
        wear_out(1, failure=BROKEN)
        clock.advance(seconds=1)
        (good,) = put()
        if who == "reaper":
            assert engine.run(engine.expire([Queue.objects.get(name="work").pk])) == 1
        [jobs] = engine.run(cohort.deal("work", [cohort.Claimer(NODE, 1)])) if who == "deal" else [claim(1)]
        assert (seqs(jobs), list(DeadLetter.objects.values_list("seq", flat=True))) == ([good], [later])
        assert helpers.state(number) is None
        assert (kinds(number)[-1], last_event(number).detail) == ("cancelled", {"reason": "ttl"})

    def test_the_last_failure_goes_with_the_letter(self) -> None:
        engine.run(engine.configure("work", max_deliveries=2, exhaust_at="release", dead_letter="graveyard"))
        (number,) = put()
        wear_out(1, failure=Failure("app.First", "one"))
        job = one()
        settled = give_back(job, 500, BROKEN)
        assert (settled.released[number], helpers.outcomes(settled)) == (("dead", None, 2), ["ok"])
        (letter,) = letters()
        assert (letter.error_type, letter.error, letter.fingerprint) == ("app.Broken", "it broke", "broken-7")
        assert failures(letter) == ["app.First", "app.Broken"]
        assert kinds(number)[-3:] == ["claimed", "released", "dead_lettered"]
        assert last_event(number).detail["error_type"] == "app.Broken"
        released = models.JobEvent.objects.filter(seq=number).order_by("-id")[1]
        assert (released.node, released.claim, released.deliveries) == (NODE, job.token, 2)
        assert counts()["dead_lettered"] == 1


class TestWhatStaysInTheClaim:
    """Jobs leave the middle of a claim; the others stay leased, each with its own count of deliveries."""

    @pytest.fixture(autouse=True)
    def _queue(self, db: None) -> None:
        make("work", max_deliveries=3, exhaust_at="release", dead_letter="graveyard")

    def leased(self) -> list[engine.LeasedJob]:
        numbers = put(5)
        for times, number in enumerate(numbers):
            delivered(times % 3, number)
        return claim(5)

    def test_when_one_is_released(self) -> None:
        jobs = self.leased()
        assert [job.deliveries for job in jobs] == [1, 2, 3, 1, 2]
        settled = give_back(jobs[2], 0, BROKEN)
        assert settled.released[jobs[2].seq].state == "dead"
        row = Claim.objects.get()
        kept = dict(zip(row.seqs, row.deliveries, strict=True))
        assert kept == dict(zip([jobs[n].seq for n in (0, 1, 3, 4)], [1, 2, 1, 2], strict=True))
        assert helpers.state(jobs[2].seq) is None
        rest = [job.seq for job in jobs if job is not jobs[2]]
        assert engine.run(engine.ack(rest, NODE, tokens=[jobs[0].token] * 4)).ok == rest
        assert not Claim.objects.exists()

    def test_when_all_expire_unless_their_holder_extended_the_lease_meanwhile(self, clock) -> None:
        jobs = self.leased()
        clock.advance(seconds=31)
        # The sweep has said that a job is used up; before it is moved its holder extends the lease.
        rows(Claim).update(deadline=clock.now + timedelta(seconds=5))
        queue = Queue.objects.get(name="work")
        assert engine.run(retire_steps(queue.pk, "", "graveyard", [jobs[2].seq])) == []
        assert (helpers.state(jobs[2].seq), letters()) == ("leased", [])
        clock.advance(seconds=6)
        assert seqs(claim(5, node=OTHER)) == [job.seq for job in jobs if job is not jobs[2]]
        assert [(letter.source_seq, failures(letter)) for letter in letters()] == [(jobs[2].seq, ["LEASE_EXPIRED"])]
        assert not Claim.objects.filter(node=NODE).exists()


class TestALetterInAQueue:
    @pytest.fixture(autouse=True)
    def _queues(self, db: None) -> None:
        make("work", max_deliveries=1, exhaust_at="release", dead_letter="graveyard")

    def arrive(self, **options: Any) -> int:
        make("graveyard", **options)
        put(name="app.task")
        wear_out(1, failure=BROKEN)
        (letter,) = letters()
        return letter.seq

    def test_it_is_listed_while_it_is_leased(self) -> None:
        number = self.arrive()
        for expected in ("ready", "leased"):
            (row,) = engine.run(dead_rows([number], payload=True))
            assert (row.state, row.home, row.deliveries, row.error_type) == (expected, "work", 1, "app.Broken")
            assert [error["type"] for error in codec.loads(row.errors_json or "")] == ["app.Broken"]
            claim(queue="graveyard")
        (job,) = Claim.objects.values_list("flags", flat=True)
        assert job == JobFlag.DEAD_LETTER | JobFlag.FAILED

    @pytest.mark.parametrize("exhaust_at", ["claim", "release"])
    def test_it_dies_again_in_place(self, exhaust_at: str, clock) -> None:
        number = self.arrive(max_deliveries=1, exhaust_at=exhaust_at, dead_letter="self")
        clock.advance(seconds=5)
        wear_out(1, "graveyard", Failure("app.Second", "again", "", "second"))
        assert claim(queue="graveyard") == []
        letter = DeadLetter.objects.get()
        assert (letter.seq, letter.in_place, letter.dead_at) == (number, True, clock.now)
        assert (letter.error_type, letter.fingerprint, helpers.state(number)) == ("app.Second", "second", "dead")

    def test_it_moves_on(self) -> None:
        number = self.arrive(max_deliveries=1, exhaust_at="release", dead_letter="third")
        wear_out(1, "graveyard", Failure("app.Second", "again"))
        assert helpers.state(number) is None
        (letter,) = letters("third")
        assert failures(letter) == ["app.Broken", "app.Second"]
        noted = [letter.meta[f"$dead_letter_{key}"] for key in ("from", "deliveries", "src_seq")]
        assert noted == ["graveyard", 1, number]
        assert list(DeadLetter.objects.values_list("seq", flat=True)) == [letter.seq]
        assert not Attempt.objects.exclude(seq=letter.seq).exists()


def test_events_of_a_burial_are_one_row_a_name_and_cause(db: None) -> None:
    make("work", max_deliveries=1, dead_letter="self")
    for name in ("app.one", "app.two"):
        put(20, name=name)
    delivered(1)
    assert claim() == []
    rows = models.LeaseEvent.objects.filter(kind=EventKind.DEAD_LETTERED).order_by("name")
    told = [(row.name, len(row.seqs), row.deliveries) for row in rows]
    assert told == [("app.one", 20, [1] * 20), ("app.two", 20, [1] * 20)]
    assert (rows[0].low, rows[0].high) == (min(rows[0].seqs), max(rows[0].seqs))
