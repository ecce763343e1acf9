"""Keys: one job per key, however many ask at once, for as long as the queue's ``dedup_until`` or the job says."""

from collections import defaultdict
from collections.abc import Callable
from threading import Barrier
from typing import Any

import pytest
from django.db import IntegrityError

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob
from django_leasequeue.models import JobResult, LiveJob, StoredJob, UniqueKey
from tests.engine import helpers
from tests.engine.flow import NO
from tests.engine.helpers import NODE, claim, enqueue, give_back, kinds, make, one, own_connection, put, state

pytestmark = pytest.mark.django_db


def ask(key: str = "k", queue: str = "work", **fields) -> tuple[int, str, str]:
    (answer,) = enqueue(NewJob(key=key, **fields), queue=queue)
    return answer.seq, answer.status.value, answer.state


def end(job: engine.LeasedJob, failure: Failure | None = None, **ending) -> None:
    settled = engine.run(engine.finish([Ending(job.seq, job.token, failure=failure, **ending)], NODE))
    assert settled.ok == [job.seq]


class TestWhileTheJobLives:
    def test_a_duplicate_names_the_job_and_where_it_is(self, queue: int) -> None:
        first, status, where = ask()
        assert (status, where) == ("queued", "ready")
        assert ask(data="ignored") == (first, "duplicate", "ready")
        assert LiveJob.objects.get().data is None
        job = one()
        assert ask() == (first, "duplicate", "leased")
        engine.run(engine.nack([first], NODE, delay_ms=5_000, tokens=[job.token]))
        assert ask() == (first, "duplicate", "delayed")
        assert kinds(first).count("enqueued") == 1

    def test_dead_jobs_past_their_time_free_their_keys(self, clock) -> None:
        make("work", dead_letter="self", max_deliveries=1, exhaust_at="release", dead_ttl_ms=10_000)
        first, *_ = enqueue(*[NewJob(key=f"k{number}") for number in range(3)])
        engine.run(engine.nack([job.seq for job in claim(3)], NODE))
        clock.advance(seconds=9)
        assert ask("k0") == (first.seq, "duplicate", "dead")
        clock.advance(seconds=1)
        answers = enqueue(*[NewJob(key=key) for key in ("new", "k2", "k0", "k2", "k1")], origin="here")
        assert [answer.status.value for answer in answers] == ["queued", "queued", "queued", "duplicate", "queued"]
        assert answers[3].seq == answers[1].seq
        assert set(LiveJob.objects.values_list("origin", flat=True)) == {"here"}
        assert (state(first.seq), kinds(first.seq)[-1]) == (None, "cancelled")


@pytest.mark.parametrize(("options", "fields"), [
    ({}, {}), ({"result_ttl_ms": 60_000}, {}), ({"dedup_until": "claimed"}, {}), ({}, {"unique_until": "end"}),
    ({}, {"unique_until": "start"}),
], ids=str)  # fmt: skip
def test_until_its_start_or_end(db: None, options: dict[str, Any], fields: dict[str, Any]) -> None:
    make("work", **options)
    first, *_ = ask(**fields)
    assert ask(**fields) == (first, "duplicate", "ready")
    job, until_start = one(), {"claimed", "start"} & {*options.values(), *fields.values()}
    if not until_start:
        assert ask(**fields) == (first, "duplicate", "leased")
        end(job, result="first")
    second, status, _ = ask(**fields)
    assert (status, second != first) == ("queued", True)
    if until_start:  # the one that is given back has started: it does not get its key again
        engine.run(engine.nack([job.seq], NODE, tokens=[job.token]))
        assert ask(**fields) == (second, "duplicate", "ready")
        assert [job.seq for job in claim(5)] == [first, second]
    elif "result_ttl_ms" in options:
        assert JobResult.objects.get().result == "first"


class TestUntilItsResultExpires:
    @pytest.fixture(autouse=True)
    def _queue(self, clock) -> None:
        make("work", dedup_until="result_ttl", result_ttl_ms=60_000)

    def test_a_completed_job_answers_with_its_result_until_that_expires(self, clock) -> None:
        first, *_ = ask()
        end(one(), result={"answer": 42})
        clock.advance(seconds=59)
        assert ask() == (first, "completed", "completed")
        assert JobResult.objects.get().result == {"answer": 42}
        assert not LiveJob.objects.exists()
        make("other")
        make("work", project="acme")
        assert ask(queue="other")[1] == enqueue(NewJob(key="k"), project="acme")[0].status == "queued"
        failed, *_ = ask("failing")
        end(one(), Failure("app.Broken", "no"))
        assert ask("failing") == (failed, "duplicate", "failed")
        clock.advance(seconds=1)
        second, status, _ = ask()
        assert (status, second != first) == ("queued", True)
        end(one(), result="second")
        assert ask() == (second, "completed", "completed")

    def test_a_live_job_beside_an_old_result_of_its_key_answers_once(self, clock) -> None:
        """The two meet when a queue changes its ``dedup_until``, or when a dead letter comes home."""
        engine.run(engine.configure("work", dedup_until="terminal", result_ttl_ms=60_000))
        ask()
        end(one())
        second, status, _ = ask()
        assert status == "queued"
        engine.run(engine.configure("work", dedup_until="result_ttl", result_ttl_ms=60_000))
        answers = enqueue(NewJob(key="k"), NewJob(key="fresh"))
        assert answers[0].seq == second
        assert [answer.status.value for answer in answers] == ["duplicate", "queued"]


def test_bulk_refuses_a_batch_with_a_taken_key_as_a_whole(queue: int) -> None:
    ask("k7")
    before = LiveJob.objects.count()
    with pytest.raises(IntegrityError, match="leasequeue_job_key"):
        enqueue(*[NewJob(key=f"k{number}") for number in range(150)], fresh=True)
    assert LiveJob.objects.count() == before


@pytest.mark.django_db(transaction=True)
class TestRaces:
    @pytest.fixture(autouse=True)
    def _queue(self, transactional_db: None) -> None:
        make("work")

    def enqueue(self, executor: engine.ConnectionExecutor, *keys: str) -> list[engine.Enqueued]:
        return executor.run(engine.enqueue("work", [NewJob(key=key) for key in keys], origin="producer"))

    @pytest.mark.parametrize(("callers", "rounds", "size"), [(3, 30, 1), (2, 5, 2_000)])
    def test_calls_at_once_make_one_job_of_each_key(self, callers: int, rounds: int, size: int) -> None:
        """They do not deadlock either, though each has the keys in another order."""
        start, answers = Barrier(callers), defaultdict[int, list[str]](list)

        def ask(caller: int) -> None:
            with own_connection() as executor:
                for number in range(rounds):
                    keys = [f"{number}-{key}" for key in range(size)]
                    start.wait(60)
                    for answer in self.enqueue(executor, *(keys[::-1] if caller else keys)):
                        answers[answer.seq].append(answer.status.value)

        helpers.crowd(callers, ask)
        told = {tuple(sorted(statuses)) for statuses in answers.values()}
        assert told == {(*["duplicate"] * (callers - 1), "queued")}
        assert len(answers) == LiveJob.objects.count() == rounds * size

    @pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
    def test_a_duplicate_waits_for_the_uncommitted_twin(self, commits: bool) -> None:
        with helpers.open_transaction() as first:
            (twin,) = self.enqueue(first, "k")
            with helpers.kept_waiting(lambda own: self.enqueue(own, "k")) as answer:
                first.connection.commit() if commits else first.connection.rollback()
            (got,) = answer.result()
        assert got.status.value == ("duplicate" if commits else "queued")
        assert (got.seq == twin.seq) is commits
        assert LiveJob.objects.get().origin == "producer"

    def lose_the_race(self, between: Callable[[], object]) -> tuple[engine.Enqueued, engine.Enqueued]:
        """Let a twin win; do ``between`` before the loser looks again: the worst moment; return both answers."""
        looks = [between]

        def lose(own: engine.ConnectionExecutor) -> list[engine.Enqueued]:
            fetch = own.fetch

            def interrupted(name: str, params: Any) -> Any:
                if name == "key_taken" and looks:
                    looks.pop()()
                return fetch(name, params)

            own.fetch = interrupted  # type: ignore[method-assign]
            return self.enqueue(own, "k")

        with helpers.open_transaction() as first:
            (twin,) = self.enqueue(first, "k")
            with helpers.kept_waiting(lose) as answer:
                first.connection.commit()
            (got,) = answer.result()
        assert not looks, "it did not look again"
        return twin, got

    @pytest.mark.parametrize("old", [False, True])
    def test_a_key_that_is_taken_and_freed_while_the_call_runs(self, old: bool) -> None:
        """The twin commits and is cancelled at once: the loser enqueues its own job and keeps its origin.

        What an earlier job of that key left behind is no answer when the queue frees finished keys.
        """
        known = []
        if old:
            engine.run(engine.configure("work", dedup_until="terminal", result_ttl_ms=600_000))
            known = put(1, key="k")
            end(one())
        with own_connection() as other:
            twin, got = self.lose_the_race(lambda: other.run(engine.cancel("work", keys=["k"])))
        assert (got.status.value, got.seq in (*known, twin.seq)) == ("queued", False)
        assert LiveJob.objects.get().origin == "producer"

    def test_a_twin_that_is_finished_while_the_call_runs(self) -> None:
        engine.run(engine.configure("work", dedup_until="result_ttl", result_ttl_ms=600_000))
        with own_connection() as other:

            def finish() -> None:
                (job,) = other.run(engine.claim("work", NODE))
                assert other.run(engine.ack([job.seq], NODE)).ok

            twin, got = self.lose_the_race(finish)
        assert (got.seq, got.status.value, got.state) == (twin.seq, "completed", "completed")


def unique(key: str = "k", **fields: Any) -> tuple[int, str, str]:
    """Enqueue a job that is unique until its end, if nothing else is said; return (seq, status, state)."""
    fields.setdefault("unique_until", None if "unique_for_ms" in fields else "end")
    return ask(key, **fields)


def test_for_a_time(clock) -> None:
    make("work")
    first, *_ = unique(unique_for_ms=10_000)
    end(one(), result="done")
    clock.advance(seconds=9)
    assert unique(unique_for_ms=10_000) == (first, "completed", "completed")
    # A call without a word of its own is told the same.
    assert enqueue(NewJob(key="k"))[0].seq == first
    clock.advance(seconds=1)
    second, status, _ = unique(unique_for_ms=10_000)
    assert (status, second != first) == ("queued", True)
    clock.advance(seconds=10)
    assert unique(unique_for_ms=10_000)[1] == "queued"
    assert LiveJob.objects.count() == 2


def test_replace(queue: int) -> None:
    (plain,) = enqueue(NewJob(key="k", data=0))
    first, status, _ = unique(data=1, on_conflict="replace")
    assert (status, state(plain.seq), UniqueKey.objects.get().seq) == ("queued", None, first), "a plain job as well"
    second, status, _ = unique(data=2, on_conflict="replace")
    assert (status, second != first) == ("queued", True)
    assert (state(first), kinds(first)[-1]) == (None, "cancelled")
    assert one().data == 2
    assert unique(data=3, on_conflict="replace") == (second, "duplicate", "leased")


def bury_and_retry(unique_until: str, delay_ms: int | None = None) -> int:
    """Make a unique job, let it die and be retried; return its number."""
    make("work", max_deliveries=1, exhaust_at="release", dead_letter="self")
    first, *_ = unique(data=1, unique_until=unique_until)
    give_back(one(), None, NO)
    engine.run(engine.redrive("work", [first], delay_ms=delay_ms))
    return first


@pytest.mark.parametrize("unique_until", ["start", "end"])
@pytest.mark.parametrize(("delay_ms", "where"), [(None, "ready"), (60_000, "delayed")])
@pytest.mark.parametrize("conflict", ["replace", "reschedule", None])
def test_a_retried_dead_letter_stays_and_has_its_key_again(
    clock, unique_until: str, delay_ms: int | None, where: str, conflict: str | None
) -> None:
    first = bury_and_retry(unique_until, delay_ms)
    asked = {"data": 2, "delay_ms": 60_000, "unique_until": unique_until}
    assert unique(**asked, on_conflict=conflict) == (first, "duplicate", where)
    clock.advance(seconds=61)
    engine.run(engine.promote([StoredJob.objects.get().queue_id]))
    assert one().data == 1
    assert unique(**asked)[1] == ("queued" if unique_until == "start" else "duplicate")


@pytest.mark.parametrize("suspended", [True, False])
def test_a_retried_dead_letter_that_was_given_back_has_its_key_unless_it_began(suspended: bool) -> None:
    first = bury_and_retry("start")
    again = one()
    give_back(again, 60_000, unstarted=True, suspended=suspended)
    status = "queued" if suspended else "duplicate"
    assert unique(data=2, unique_until="start")[1] == status
    assert (first == again.seq, StoredJob.objects.count()) == (True, 2 if suspended else 1)


@pytest.mark.parametrize("unique_until", ["start", "end"])
@pytest.mark.parametrize("topic", ["a log", "a queue"])
def test_a_dead_letter_in_a_topic_has_another_number_and_is_not_unique(unique_until: str, topic: str) -> None:
    """Neither there nor home again, as the pages about unique tasks and queues' options say; its own key stays."""
    fields = {"unique_until": unique_until, "unique_key": "u"}
    if topic == "a queue":
        make("dead")
    make("work", max_deliveries=1, exhaust_at="release", dead_letter="dead")
    first, *_ = ask("a", data=1, **fields)
    give_back(one(), None, NO)
    dead = StoredJob.objects.get()
    assert (dead.queue.name, dead.key) == ("dead", "a")
    assert ask("b", data=2, **fields)[1] == "queued"
    engine.run(engine.redrive("dead", [dead.seq], to="work"))
    assert sorted((job.key, job.data) for job in claim(3)) == [("a", 1), ("b", 2)]
    assert first not in StoredJob.objects.values_list("seq", flat=True)


def test_reschedule(clock) -> None:
    make("work")
    first, *_ = unique(data=1, delay_ms=5_000)
    assert unique(data=2, delay_ms=60_000, on_conflict="reschedule") == (first, "duplicate", "delayed")
    clock.advance(seconds=59)
    engine.run(engine.promote([StoredJob.objects.get().queue_id]))
    assert claim() == []
    assert unique(on_conflict="reschedule") == (first, "duplicate", "ready")
    assert unique(delay_ms=60_000, on_conflict="reschedule") == (first, "duplicate", "delayed")
    clock.advance(seconds=61)
    engine.run(engine.promote([StoredJob.objects.get().queue_id]))
    assert one().data == 1
