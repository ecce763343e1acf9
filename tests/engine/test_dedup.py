"""Keys: one job per key, however many ask at once, for as long as the queue's ``dedup_until`` says."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob
from django_leasequeue.models import LiveJob

from . import helpers
from .helpers import NODE, claim, enqueue, kept_waiting, kinds, make, one, open_transaction, own_connection, result_of

pytestmark = pytest.mark.django_db


class Interrupted(engine.ConnectionExecutor):
    """Calls ``before[name]`` once, just before it sends the statement ``name``: the worst moment, every time."""

    def __init__(self, executor: engine.ConnectionExecutor, before: dict[str, Callable[[], object]]) -> None:
        super().__init__(executor.connection)
        self.before = before

    def fetch(self, name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if name in self.before:
            self.before.pop(name)()
        return super().fetch(name, params)


def ask(key: str = "k", queue: str = "work", **fields) -> tuple[int, str, str]:
    """Enqueue one job with a key; return (seq, status, state)."""
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

    def test_a_dead_job_past_its_time_frees_its_key(self, clock) -> None:
        make("work", dead_letter="self", max_deliveries=1, exhaust_at="release", dead_ttl_ms=10_000)
        first, *_ = ask()
        one()
        engine.run(engine.nack([first], NODE))
        clock.advance(seconds=9)
        assert ask() == (first, "duplicate", "dead")
        clock.advance(seconds=1)
        second, status, _ = ask()
        assert (status, second != first) == ("queued", True)
        assert helpers.state(first) is None
        assert kinds(first)[-1] == "cancelled"

    def test_several_dead_jobs_past_their_time_in_one_call(self, clock) -> None:
        make("work", dead_letter="self", max_deliveries=1, exhaust_at="release", dead_ttl_ms=10_000)
        enqueue(*[NewJob(key=f"k{number}") for number in range(3)])
        engine.run(engine.nack([job.seq for job in claim(3)], NODE))
        clock.advance(seconds=11)
        answers = enqueue(*[NewJob(key=key) for key in ("new", "k2", "k0", "k2", "k1")], origin="here")
        assert [answer.status.value for answer in answers] == ["queued", "queued", "queued", "duplicate", "queued"]
        assert answers[3].seq == answers[1].seq
        assert set(LiveJob.objects.values_list("origin", flat=True)) == {"here"}


@pytest.mark.parametrize("options", [{}, {"result_ttl_ms": 60_000}], ids=str)
def test_until_its_end_whether_its_result_is_kept_or_not(db: None, options: dict[str, Any]) -> None:
    make("work", **options)
    for number in range(2):
        assert ask()[1] == "queued"
        end(one(), result=number)
    if options:
        assert result_of("k").result == 1


def test_until_it_is_claimed(clock) -> None:
    make("work", dedup_until="claimed")
    first, *_ = ask()
    assert ask() == (first, "duplicate", "ready")
    assert one().seq == first
    second, status, _ = ask()
    assert (status, second != first) == ("queued", True)
    clock.advance(seconds=31)
    assert [job.seq for job in claim(5)] == [first, second]


class TestUntilItsResultExpires:
    @pytest.fixture(autouse=True)
    def _queue(self, clock) -> None:
        make("work", dedup_until="result_ttl", result_ttl_ms=60_000)

    def test_a_completed_job_answers_with_its_result(self, clock) -> None:
        first, *_ = ask()
        end(one(), result={"answer": 42})
        clock.advance(seconds=59)
        assert ask() == (first, "completed", "completed")
        assert result_of("k").result == {"answer": 42}
        assert not LiveJob.objects.exists()
        make("other")
        make("work", project="acme")
        assert ask(queue="other")[1] == enqueue(NewJob(key="k"), project="acme")[0].status == "queued"
        failed, *_ = ask("failing")
        end(one(), Failure("app.Broken", "no"))
        assert ask("failing") == (failed, "duplicate", "failed")

    def test_the_key_is_free_the_moment_the_result_expires(self, clock) -> None:
        first, *_ = ask()
        end(one())
        clock.advance(seconds=60)
        second, status, _ = ask()
        assert (status, second != first) == ("queued", True)
        end(one(), result="second")
        assert result_of("k").seq == second

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
    """Real connections: what one has not committed the others cannot see."""

    @pytest.fixture(autouse=True)
    def _queue(self, transactional_db: None) -> None:
        make("work")

    def enqueue(self, executor: engine.ConnectionExecutor, *keys: str) -> list[engine.Enqueued]:
        return executor.run(engine.enqueue("work", [NewJob(key=key) for key in keys], origin="producer"))

    def test_three_ask_at_once_and_one_job_is_made(self) -> None:
        rounds = 30
        with own_connection() as a, own_connection() as b, own_connection() as c, ThreadPoolExecutor(3) as threads:
            start = Barrier(3)

            def all_rounds(executor: engine.ConnectionExecutor) -> list[engine.Enqueued]:
                answers = []
                for number in range(rounds):
                    start.wait()
                    answers += self.enqueue(executor, f"k{number}")
                return answers

            answers = list(threads.map(all_rounds, [a, b, c]))
        for together in zip(*answers, strict=True):
            assert sorted(answer.status.value for answer in together) == ["duplicate", "duplicate", "queued"]
            assert len({answer.seq for answer in together}) == 1
        assert LiveJob.objects.count() == rounds

    @pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
    def test_a_duplicate_waits_for_the_uncommitted_twin(self, commits: bool) -> None:
        with open_transaction() as first:
            (twin,) = self.enqueue(first, "k")
            with kept_waiting(lambda own: self.enqueue(own, "k")) as answer:
                first.connection.commit() if commits else first.connection.rollback()
            (got,) = answer.result()
        assert got.status.value == ("duplicate" if commits else "queued")
        assert (got.seq == twin.seq) is commits
        assert LiveJob.objects.get().origin == "producer"

    def lose_the_race(self, between: Callable[[], object]) -> tuple[engine.Enqueued, engine.Enqueued]:
        """Let a twin win; do ``between`` before the loser looks again; return both answers."""
        looks = {"key_taken": between}
        with open_transaction() as first:
            (twin,) = self.enqueue(first, "k")
            with kept_waiting(lambda own: self.enqueue(Interrupted(own, looks), "k")) as answer:
                first.connection.commit()
            (got,) = answer.result()
        assert not looks, "it did not look again"
        return twin, got

    def test_a_key_that_is_taken_and_freed_while_the_call_runs(self) -> None:
        """The twin commits and is cancelled at once: the loser enqueues its own job and keeps its origin."""
        with own_connection() as other:
            twin, got = self.lose_the_race(lambda: other.run(engine.cancel("work", keys=["k"])))
        assert (got.status.value, got.seq != twin.seq) == ("queued", True)
        assert LiveJob.objects.get().origin == "producer"

    def test_a_twin_that_is_finished_while_the_call_runs(self) -> None:
        engine.run(engine.configure("work", dedup_until="result_ttl", result_ttl_ms=600_000))
        with own_connection() as other:

            def finish() -> None:
                (job,) = other.run(engine.claim("work", NODE))
                assert other.run(engine.ack([job.seq], NODE)).ok

            twin, got = self.lose_the_race(finish)
        assert (got.seq, got.status.value, got.state) == (twin.seq, "completed", "completed")

    def test_an_old_result_is_no_answer_when_the_queue_frees_finished_keys(self) -> None:
        """What an earlier job of that key left behind must not swallow a new one."""
        engine.run(engine.configure("work", dedup_until="terminal", result_ttl_ms=600_000))
        old = helpers.put(1, key="k")[0]
        end(one())
        with own_connection() as other:
            twin, got = self.lose_the_race(lambda: other.run(engine.cancel("work", keys=["k"])))
        assert got.status.value == "queued"
        assert got.seq not in (old, twin.seq)

    def test_batches_with_the_same_keys_in_another_order_do_not_deadlock(self) -> None:
        keys = [f"k{number}" for number in range(2_000)]
        with own_connection() as a, own_connection() as b, ThreadPoolExecutor(2) as threads:
            start = Barrier(2)

            def all_rounds(executor: engine.ConnectionExecutor, order: list[str]) -> list[str]:
                statuses = []
                for number in range(5):
                    start.wait()
                    answers = self.enqueue(executor, *[f"{number}-{key}" for key in order])
                    statuses += [answer.status.value for answer in answers]
                return statuses

            try:
                answers = list(threads.map(all_rounds, [a, b], [keys, keys[::-1]]))
            except psycopg.errors.DeadlockDetected:
                start.abort()
                raise
        assert sum(status == "queued" for statuses in answers for status in statuses) == 5 * 2_000
        assert LiveJob.objects.count() == 5 * 2_000
