"""Metrics over hand-made histories whose answers are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from django_leasequeue.spark import metrics
from django_leasequeue.spark.metrics.capacity import erlang_c, workers
from tests.spark.helpers import at
from tests.spark.history import SCHEMA, History

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.select(*names).collect()]


def test_attempts_of_a_job_that_needed_three(spark: SparkSession) -> None:
    history = History()
    history.job(0, ("a", 1, 3, "released"), ("b", 10, 40, "expired"), ("a", 45, 46, "acked"))
    found = metrics.attempts(history.frame(spark)).orderBy("attempt")

    assert rows(found, "attempt", "node", "waited", "ran", "outcome") == [
        (1, "a", 1.0, 2.0, "released"),
        (2, "b", 7.0, None, "expired"),
        (3, "a", 5.0, 1.0, "completed"),
    ]
    job = metrics.jobs(history.frame(spark))
    assert rows(job, "state", "deliveries", "expiries", "releases", "total") == [("completed", 3, 1, 1, 46.0)]


def test_repeated_and_disordered_events_change_nothing(spark: SparkSession) -> None:
    history = History()
    for number in range(20):
        history.job(number, ("a", number + 1, number + 2, "released"), ("b", number + 3, number + 4, "acked"))
    once = history.frame(spark)
    doubled = spark.createDataFrame(list(reversed(history.rows + history.rows[::3])), SCHEMA)

    for function in (metrics.attempts, metrics.jobs):
        assert sorted(map(str, function(once).collect())) == sorted(map(str, function(doubled).collect()))


def test_a_retry_that_was_to_wait_is_not_waiting_before(spark: SparkSession) -> None:
    history = History()
    seq = history.job(0, ("a", 1, 2, "running"))
    history.event(seq, "released", 2, node="a")
    history.event(seq, "claimed", 65, node="a", waited=3)
    found = metrics.attempts(history.frame(spark)).orderBy("attempt")
    assert rows(found, "waited", "outcome") == [(1.0, "released"), (3.0, "running")]


def test_a_job_whose_enqueue_is_not_told_began_when_it_was_ready(spark: SparkSession) -> None:
    history = History()
    history.event(1, "claimed", 65, node="a", waited=5)
    history.event(1, "acked", 66, node="a")
    (job,) = metrics.jobs(history.frame(spark)).collect()
    assert (job.enqueued_at, job.total) == (at(60).replace(tzinfo=None), 6.0)


def test_states_of_jobs(spark: SparkSession) -> None:
    history = History()
    history.job(0, ("a", 1, 2, "dead_lettered"))
    history.job(0, ("a", 1, 2, "failed"))
    history.job(0, ("a", 1, 2, "running"))
    history.job(0)
    alive = history.job(0, ("a", 1, 2, "dead_lettered"))
    history.event(alive, "redriven", 5)
    for number, detail in enumerate(({"by": "spark"}, {"to": "other", "to_seq": 99})):
        moved = history.job(0, ("a", 1, 2, "dead_lettered" if number else "failed"))
        history.event(moved, "redriven", 7_200, detail=detail)
    copy = next(history._seqs)  # in a topic of dead letters, known by its redrive alone
    history.event(copy, "redriven", 7_200, detail={"to": "work", "to_seq": 98})
    cancelled = history.job(0)
    history.event(cancelled, "cancelled", 9)

    found = metrics.jobs(history.frame(spark)).orderBy("seq")

    states = ["dead", "failed", "open", "open", "open", "redriven", "redriven", "cancelled"]
    assert [state for (state,) in rows(found, "state")] == states
    # A job that goes on under another number was over when it died: nothing is left of it in the backlog.
    assert [level for (level,) in rows(metrics.backlog(found).orderBy("hour"), "level")][-1] == 3


def test_the_backlog_returns_to_zero(spark: SparkSession) -> None:
    history = History()
    for number in range(10):
        history.job(0, ("a", 3_600 * (1 + number // 4) + 1, 3_600 * (1 + number // 4) + 2, "acked"))
    events = history.frame(spark)
    curve = metrics.backlog(metrics.jobs(events)).orderBy("hour")

    assert rows(curve, "came", "went", "level") == [(10, 0, 10), (0, 4, 6), (0, 4, 2), (0, 2, 0)]
    flying = metrics.in_flight(metrics.attempts(events)).orderBy("hour")
    assert [row[0] for row in rows(flying, "level")] == [0, 0, 0]


def test_percentiles_are_values_that_occurred(spark: SparkSession) -> None:
    history = History(lease=10_000)
    for number in range(1, 101):
        history.job(0, ("a", number, number + 2 * number, "acked"))
    events = history.frame(spark)
    found = metrics.latency(metrics.attempts(events), metrics.jobs(events)).orderBy("measure")

    assert rows(found, "measure", "n", "p50", "p95", "p99", "highest") == [
        ("run", 100, 100.0, 190.0, 198.0, 200.0),
        ("total", 100, 150.0, 285.0, 297.0, 300.0),
        ("wait", 100, 50.0, 95.0, 99.0, 100.0),
    ]


def test_rates(spark: SparkSession) -> None:
    history = History()
    for _ in range(3):
        history.job(0, ("a", 1, 2, "acked"))
    history.job(0, ("a", 1, 2, "released"), ("a", 3, 4, "acked"))
    events = history.frame(spark)
    found = metrics.throughput(metrics.attempts(events), metrics.jobs(events))
    assert rows(
        found, "enqueued", "claimed", "completed", "failed", "redelivered", "failure_rate", "redelivery_rate"
    ) == [(4, 5, 4, 0, 1, 0.2, 0.2)]


def test_a_sick_and_a_slow_node_stand_out_and_a_bad_release_does_not(spark: SparkSession) -> None:
    history = History()
    for number in range(200):
        for node in ("a", "b", "c"):
            history.job(0, (node, 1, 2, "released" if number % 50 == 0 else "acked"))
        history.job(0, ("sick", 1, 2, "released" if number % 3 == 0 else "acked"))
        history.job(0, ("slow", 1, 6, "acked"))
    history.job(0, ("new", 1, 2, "failed"))
    found = metrics.node_health(metrics.attempts(history.frame(spark)))

    verdicts = dict(rows(found, "node", "verdict"))
    assert verdicts == {"a": "well", "b": "well", "c": "well", "sick": "sick", "slow": "slow", "new": "unknown"}
    assert rows(found, "node")[0] == ("new",) or rows(found, "node")[0] == ("sick",)

    everybody = History()
    for number in range(100):
        for node in ("a", "b", "c"):
            everybody.job(0, (node, 1, 2, "released" if number % 2 else "acked"))
    assert {row[0] for row in rows(metrics.node_health(metrics.attempts(everybody.frame(spark))), "verdict")} == {
        "well"
    }


def test_poison_by_fingerprint(spark: SparkSession) -> None:
    history = History()
    for number in range(3):
        history.job(0, ("a", 1, 2, "released"), ("b", 3, 4 + number, "dead_lettered"), fingerprint="poison")
    for _ in range(2):
        history.job(0, ("b", 1, 2, "released"), ("a", 3, 4, "acked"), fingerprint="disk full on b")
    events = history.frame(spark)
    found = metrics.poison(metrics.attempts(events), metrics.jobs(events))

    assert rows(found, "fingerprint", "failures", "jobs", "dead", "nodes", "node_names", "one_node", "last_at") == [
        ("poison", 6, 3, 3, 2, ["a", "b"], False, at(6).replace(tzinfo=None)),
        ("disk full on b", 2, 2, 0, 1, ["b"], True, at(2).replace(tzinfo=None)),
    ]


@pytest.mark.parametrize(
    ("ran", "outcome", "advice"), [(29, "acked", "longer"), (0.5, "acked", "shorter"), (10, "acked", "keep")]
)
def test_lease_advice(spark: SparkSession, ran: float, outcome: str, advice: str) -> None:
    history = History(lease=30)
    for _ in range(50):
        history.job(0, ("a", 1, 1 + ran, outcome))
    found = metrics.lease_advice(metrics.attempts(history.frame(spark))).where("node is null").first()
    assert (found.advice, found.lease) == (advice, 30.0)
    assert found.suggested >= ran


def test_a_run_is_what_the_worker_said_not_how_long_it_held_the_job(spark: SparkSession) -> None:
    history = History()
    for end, fields in (("acked", {"ran": 250}), ("acked", {}), ("expired", {}), ("cancelled", {})):
        seq = history.job(0, ("a", 1, 2, "running"))
        history.event(seq, end, 9, node="a", **fields)
    found = metrics.attempts(history.frame(spark)).orderBy("seq")
    assert rows(found, "held", "ran") == [(8.0, 0.25), (8.0, 8.0), (8.0, None), (8.0, None)]
    assert rows(found, "error_type", "fingerprint")[2] == ("LEASE_EXPIRED", "lease_expired")


def test_a_node_is_compared_on_its_own_queues(spark: SparkSession) -> None:
    """Half of all jobs of one queue fail wherever they run: whoever works there more is not ill for that."""
    history, other = History(), History("bad")
    for number in range(200):
        for node in ("a", "b"):
            history.job(0, (node, 1, 2, "acked"))
            other.job(0, (node, 1, 2, "released" if number % 2 else "acked"))
        other.job(0, ("mostly there", 1, 2, "released" if number % 2 else "acked"))
        history.job(0, ("mostly there", 1, 2, "acked")) if number % 10 == 0 else None
    shifted = [(row[0] + 10_000, *row[1:5], row[5] + 10_000, *row[6:]) for row in other.rows]
    events = spark.createDataFrame(history.rows + shifted, SCHEMA)
    found = metrics.node_health(metrics.attempts(events))
    assert {row[0] for row in rows(found, "verdict")} == {"well"}
    (most,) = found.where("node = 'mostly there'").collect()
    assert most.rate == pytest.approx(most.others_rate)


def test_the_illness_of_a_node_that_was_mended_is_over(spark: SparkSession) -> None:
    history = History()
    for hour in range(12):
        for number in range(30):
            ill = 4 <= hour < 7 and number % 2 == 0
            second = hour * 3_600 + number
            history.job(second, ("ill", second + 1, second + 2, "released" if ill else "acked"))
            history.job(second, ("well", second + 1, second + 2, "acked"))
    (ill,) = metrics.node_health(metrics.attempts(history.frame(spark))).where("verdict = 'sick'").collect()
    assert (ill.node, ill.ill_since, ill.ill_until) == (
        "ill",
        at(4 * 3_600 + 1).replace(tzinfo=None),
        at(6 * 3_600 + 29).replace(tzinfo=None),
    )


def test_leases_that_one_node_lets_expire_are_not_the_queues_fault(spark: SparkSession) -> None:
    history = History(lease=30)
    for number in range(50):
        history.job(0, ("a", 1, 11, "acked"))
        history.job(0, ("b", 1, 31 if number < 5 else 11, "expired" if number < 5 else "acked"))
    found = metrics.lease_advice(metrics.attempts(history.frame(spark))).orderBy(f.col("node").asc_nulls_first())
    assert rows(found, "node", "nodes", "expired", "advice") == [
        (None, 2, 5, "node"),
        ("a", 1, 0, "keep"),
        ("b", 1, 5, "longer"),
    ]


def test_hour_of_week_forecast_and_workers(spark: SparkSession) -> None:
    history = History()
    for week, count in ((0, 10), (1, 10), (2, 20)):
        for number in range(count):
            start = week * 7 * 86_400 + number
            history.job(start, ("a", start, start + 18, "acked"))
    history.job(3 * 7 * 86_400)  # the newest hour, which is not over
    events = history.frame(spark)
    silver, jobs = metrics.attempts(events), metrics.jobs(events)
    weekly = metrics.hour_of_week(silver, jobs)

    # 2030-01-01 12:00 is a Tuesday noon: hour 36. In all other hours nothing came, three times.
    noon = weekly.where("hour_of_week = 36")
    assert rows(noon, "weeks", "arrivals", "peak", "run") == [(3, 10.0, 20, 18.0)]
    assert rows(weekly.where("arrivals = 0").groupBy("weeks").count(), "weeks", "count") == [(3, 167)]
    expected = metrics.forecast(weekly).where("hour_of_week = 36")
    assert rows(expected, "expected", "trend") == [(20.0, 2.0)]
    needed = metrics.workers_needed(expected, wait=5.0).first()
    assert needed.workers == workers(20 / 3600, 18.0, 5.0) == 2


def test_erlang_c_against_known_values() -> None:
    assert erlang_c(8, 10) == pytest.approx(0.4092, abs=1e-4)
    assert erlang_c(0.5, 1) == pytest.approx(0.5)  # M/M/1: the load itself
    assert erlang_c(3, 3) == 1.0
    assert workers(10.0, 1.0, 1.0) > 10


def test_an_empty_log_has_empty_tables(spark: SparkSession) -> None:
    events = spark.createDataFrame([], SCHEMA)
    silver, jobs = metrics.attempts(events), metrics.jobs(events)
    for frame in (metrics.latency(silver, jobs), metrics.node_health(silver), metrics.poison(silver, jobs)):
        assert frame.agg(f.count(f.lit(1))).first() == (0,)
