"""The figures of the last hour are counted: every job, retry and failure, however many a statement changed at once."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_leasequeue import engine
from django_leasequeue.admin import rates, reading
from django_leasequeue.conf.process import forget
from django_leasequeue.engine import Ending, Failure, NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.sql import statement
from tests.admin.letters import end, give_back
from tests.admin.pages import VIEWS, look, signed_in
from tests.engine.helpers import NODE, claim, make, put
from tests.support.sampling import sample

pytestmark = pytest.mark.django_db

BROKEN = Failure("shop.Declined", "card declined", "Traceback", "print-a")


def lately(queue: int | None = None, span: rates.Span = rates.HOUR, **options: int) -> rates.Rates:
    return reading.read_log(rates.read_rates(queue, span, **options))


def tasks(seconds: int = 3_600, **options: int) -> dict[str | None, rates.TaskRate]:
    return {task.name: task for task in reading.read_log(rates.read_tasks(seconds=seconds, **options))[1]}


def fail(count: int, **options: int | None) -> None:
    leased = claim(count)
    assert len(leased) == count
    give_back(*leased, failure=BROKEN, **options)


class TestRates:
    def test_every_failure_of_an_hour_counts_minutes_later(self, clock: Clock) -> None:
        queue = make(max_deliveries=2, exhaust_at="release", dead_letter="self")
        for _ in range(3):
            put(900)
        for _ in range(3):
            fail(900, delay_ms=0)
        clock.advance(minutes=4)
        whole = lately(queue).of(None)
        assert (whole.failed, whole.retried, whole.ended) == (2_700, 1_800, 900)
        fail(500, delay_ms=0)
        clock.advance(minutes=50)
        whole = lately(queue).of(None)
        counted = (whole.enqueued, whole.claimed, whole.failed, whole.retried, whole.ended)
        assert counted == (2_700, 3_200, 3_200, 1_800, 1_400)
        assert lately(queue).of(queue) == whole._replace(queue_id=queue)
        clock.advance(minutes=7)
        expected = rates.Rate(None, None, claimed=500, failed=500, ended=500, waits=(240.0,) * 3)
        assert lately(queue).of(None) == expected

    def test_each_way_to_end_counts_for_what_it_is(self, clock: Clock) -> None:
        queue = make(result_ttl_ms=60_000, max_deliveries=5, lease_ms=1_000)
        put(10)
        jobs = claim(10)
        end(*jobs[:4])
        end(jobs[4], failure=BROKEN)
        give_back(*jobs[5:7], delay_ms=0)
        give_back(jobs[7], failure=BROKEN, delay_ms=0)
        clock.advance(seconds=2)
        engine.run(engine.sweep([queue]))
        whole = lately(queue).of(None)
        # Two were given back: that is no failure. Two leases were over: that is one.
        assert (whole.completed, whole.failed, whole.retried, whole.ended) == (4, 4, 3, 1)

    def test_waits_count_from_when_a_job_was_ready(self, clock: Clock) -> None:
        queue = make(max_deliveries=5)
        put()
        clock.advance(seconds=2)
        fail(1, delay_ms=780_000)
        clock.advance(seconds=781)
        end(*claim(1))
        put(1, delay_ms=600_000)
        clock.advance(seconds=604)
        claim(1)
        assert lately(queue).of(None).waits == tasks()[None].waits == (2.0, 4.0, 4.0)

    def test_of_many_jobs_some_are_looked_at_and_of_a_rare_task_all(self, clock: Clock, monkeypatch: Any) -> None:
        monkeypatch.setattr(rates, "SAMPLED", 100)
        queue = make()
        for seconds in range(10):
            engine.run(engine.enqueue("work", [NewJob(name="often")] * 40 + [NewJob(name="rare")]))
            clock.advance(seconds=seconds)
            jobs = claim(41)
            ends = [Ending(job.seq, job.token, ran_ms=job.seq - jobs[0].seq + 1_000 * seconds) for job in jobs]
            engine.run(engine.finish(ends, NODE))
        found = tasks()
        often, rare = found["often"], found["rare"]
        assert (rare.one_of, rare.waits) == (1, (4.0, 9.0, 9.0))
        assert (often.one_of, lately(queue).of(None).one_of) == (8, 5)
        assert often.waits is not None
        assert 2.0 <= often.waits[0] <= 7.0
        slowest = max(often.slowest or 0, rare.slowest or 0)
        assert (slowest, {often.slowest_seq, rare.slowest_seq} >= {jobs[-1].seq}) == (9.04, True)

    def test_buckets_add_up_and_are_where_they_belong(self, clock: Clock) -> None:
        queue = make()
        for count in (1, 2, 3):
            put(count)
            clock.advance(minutes=20)
        put(7)
        found = lately(queue, rates.Span("1 h", 3_600, 1_200))
        assert [found.of(None, n).enqueued for n in range(3)] == [1, 2, 10]
        assert found.of(None).enqueued == 13

    def test_a_log_with_too_many_rows_is_counted_as_far_as_it_goes_and_says_so(self, clock: Clock) -> None:
        queue = make()
        for _ in range(60):
            put()
            clock.advance(minutes=1)
        found = lately(queue, size=20)
        assert found.reach.whole is False
        counted = (found.reach.now - found.reach.since).total_seconds()
        assert found.of(None).enqueued == counted / 60
        assert 0 < counted <= 20 * 60
        shown = rates.show(found, rates.HOUR)
        assert ("could be counted" in found.reach.note, shown["words"]) == (True, f"last {counted / 60:.0f} min")
        assert lately(queue, size=1_000).reach.whole is True

    def test_of_the_newest_bucket_a_part_is_counted_where_it_alone_has_too_many_rows(self, clock: Clock) -> None:
        queue = make()
        for _ in range(60):
            put()
            clock.advance(seconds=1)
        found = lately(queue, size=8)
        assert found.reach.whole is False
        seconds = (found.reach.now - found.reach.since).total_seconds()
        assert seconds == 7.5
        assert found.of(None).enqueued == found.of(None, 29).enqueued == 7
        shown = rates.show(found, rates.HOUR)
        assert shown["words"] == "last 7.5 s"
        for share, expected in ((900, 7), (86_400, 5), (604_800, 4)):
            reach, _ = reading.read_log(rates.read_tasks(seconds=share, size=8))
            assert (reach.now - reach.since).total_seconds() <= expected + 3

    def test_rows_of_many_jobs_and_of_dropped_partitions(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        queue = make()
        for _ in range(60):
            put(100)
            clock.advance(minutes=1)
        assert lately(queue).reach.whole is True
        with monkeypatch.context() as patch:
            patch.setattr(rates, "MAX_NUMBERS", 2_000)
            found = lately(queue)
            assert found.reach.whole is False
            assert 0 < found.of(None).enqueued <= 2_000
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE leasequeue_leaseevent DETACH PARTITION leasequeue_leaseevent_p0")
        assert lately(queue).reach.whole is True
        clock.advance(minutes=1)
        found = lately(queue)
        assert (found.of(None).enqueued, found.reach.whole) == (0, True)


class TestTasks:
    def run(self, name: str, ran_ms: int, *, count: int = 1, failure: Failure | None = None) -> list[int]:
        put(count, name=name)
        end(*(jobs := claim(count)), failure=failure, ran_ms=ran_ms)
        return [job.seq for job in jobs]

    def test_runs_waits_and_times_of_each_task(self, clock: Clock) -> None:
        make(result_ttl_ms=60_000)
        (slow,) = self.run("shop.pay", 9_000)
        self.run("shop.pay", 100, count=97)
        self.run("shop.mail", 5)
        clock.advance(seconds=30)
        broken = self.run("shop.pay", 300, count=2, failure=BROKEN)
        found = tasks()
        pay, mail = found["shop.pay"], found["shop.mail"]
        assert list(found) == ["shop.pay", "shop.mail"]
        assert (pay.runs, pay.completed, pay.failed, pay.ended) == (100, 98, 2, 2)
        assert (pay.ran, pay.slowest, pay.slowest_seq) == ((0.1, 0.1, 0.3), 9.0, slow)
        assert (pay.failed_at, pay.failed_seq) == (clock.now, max(broken))
        assert (mail.runs, mail.failed_seq, mail.ran) == (1, None, (0.005, 0.005, 0.005))

    def claims(self, clock: Clock, rows: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO leasequeue_leaseevent"
                " (txid, occurred_at, queue_id, low, high, kind, node, claim, name, seqs, waited)"
                " SELECT 1000, %s, %s, 1, 1000, 2, 'n', g, 'task_' || g %% 2, array_fill(1::bigint, ARRAY[1000]),"
                " array_fill(7, ARRAY[1000]) FROM generate_series(1, %s) AS g ORDER BY g",
                [clock.now, make(), rows],
            )

    def test_of_very_many_claims_every_task_has_some_that_are_looked_at(self, clock: Clock) -> None:
        """Two tasks take turns: a choice by the parity of the rows' numbers would leave one of them out."""
        self.claims(clock, 1_200)
        assert {name: task.waits for name, task in tasks().items()} == dict.fromkeys(("task_0", "task_1"), (0.007,) * 3)

    @pytest.mark.parametrize("name", ["admin/task_rates", "admin/event_rates"])
    def test_what_is_sorted_are_numbers_not_arrays(self, clock: Clock, name: str) -> None:
        self.claims(clock, 200)
        given = {"since": clock.now - timedelta(hours=1), "size": 100, "queue": None, "bucket": 120, "sampled": 5_000}
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS) {statement(name)}", {**given, "now": clock.now})
            plan = "\n".join(line for (line,) in cursor.fetchall())
        assert "external merge" not in plan, plan

    def test_a_range_of_time_and_a_run_time_that_nobody_told(self, clock: Clock) -> None:
        make()
        self.run("old", 1)
        clock.advance(hours=3)
        put(name="new")
        end(*claim())
        (found,) = tasks(900).values()
        assert (found.name, found.runs, found.ran, found.slowest) == ("new", 1, None, None)
        assert set(tasks(86_400)) == {"new", "old"}


def test_what_is_not_known_is_not_called_zero(clock: Clock) -> None:
    for number in range(30):
        make(f"q{number}")
    client = signed_in(*VIEWS)
    assert "ready unknown not sampled yet" in look(client, "overview").text
    sample()
    clock.advance(seconds=20)
    forget()  # what holds for the whole database is kept for ten seconds
    text = look(client, "overview").text
    assert ("ready 0 jobs, sampled 20 s ago" in text, "wait p50 / p99 no claims" in text) == (True, True)


def test_the_page_of_tasks_says_what_ran_and_what_is_unknown(clock: Clock) -> None:
    make(result_ttl_ms=60_000)
    TestTasks().run("shop.pay", 1_500, count=3)
    TestTasks().run("shop.pay", 250, failure=BROKEN)
    put(1, name="shop.mail")
    end(*claim())
    client = signed_in(*VIEWS)
    text = look(client, "tasks").text
    assert "shop.pay 4 1 25 % 0 1 0 ms / 0 ms / 0 ms 1.5 s / 1.5 s / 1.5 s 1.5 s" in text
    assert "shop.mail 1 0 0 0 0 ms / 0 ms / 0 ms unknown unknown none" in text
    clock.advance(minutes=20)
    assert "No run ended, last 15 min" in look(client, "tasks", range="15 min").text
    for query in ({"range": "7 d", "sort": "failed"}, {"range": "nonsense", "sort": "nonsense"}):
        assert "shop.pay" in look(client, "tasks", **query).text
