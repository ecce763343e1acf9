"""Metrics over hand-made histories whose answers are known."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from django_leasequeue.spark import metrics
from tests.spark.helpers import SCHEMA, History, at


def rows(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.select(*names).collect()]


def test_a_bad_release_makes_no_node_stand_out(spark: SparkSession) -> None:
    everybody = History()
    for number in range(100):
        for node in ("a", "b", "c"):
            everybody.job(0, (node, 1, 2, "released" if number % 2 else "acked"))
    found = metrics.node_health(metrics.attempts(everybody.frame(spark)))
    assert set(rows(found, "verdict")) == {("well",)}


def test_a_job_whose_events_come_in_several_batches(spark: SparkSession) -> None:
    history = History()
    for number in range(20):
        history.job(number, ("a", number + 1, number + 2, "released"), ("b", number + 3, number + 4, "acked"))
    found = metrics.attempts(history.frame(spark)).orderBy("seq", "attempt")
    size = "spark.sql.execution.arrow.maxRecordsPerBatch"
    whole, before = found.collect(), spark.conf.get(size)
    spark.conf.set(size, "3")
    try:
        assert found.select("*").collect() == whole
    finally:
        spark.conf.set(size, before)
    assert [row.outcome for row in whole] == ["released", "completed"] * 20


def test_figures_are_computed_from_the_aggregates_that_are_kept(spark: SparkSession) -> None:
    events = History()
    events.job(0, ("a", 1, 2, "acked"))
    attempts, jobs = metrics.attempts(events.frame(spark)), metrics.jobs(events.frame(spark))
    by_hour, by_minute = metrics.attempts_by_hour(attempts), metrics.attempts_by_minute(attempts)
    kept = [
        frame.persist() for frame in (by_hour, by_minute, metrics.jobs_by_hour(jobs), metrics.latencies(attempts, jobs))
    ]
    try:
        figures = [
            metrics.use(attempts),
            metrics.in_flight(attempts),
            metrics.node_health(attempts),
            metrics.backlog(jobs),
        ]
        of_both = (metrics.throughput, metrics.span, metrics.hour_of_week, metrics.daily)
        for figure in (*figures, *(of(attempts, jobs) for of in of_both)):
            leaves = figure._jdf.queryExecution().withCachedData().collectLeaves()  # type: ignore[operator]
            kinds = {leaves.apply(place).getClass().getSimpleName() for place in range(leaves.size())}
            assert kinds == {"InMemoryRelation"}
    finally:
        for frame in kept:
            frame.unpersist()


def test_poison_by_fingerprint(spark: SparkSession) -> None:
    history = History()
    for number in range(3):
        history.job(0, ("a", 1, 2, "released"), ("b", 3, 4 + number, "dead_lettered"), fingerprint="poison")
    for _ in range(2):
        history.job(0, ("b", 1, 2, "released"), ("a", 3, 4, "acked"), fingerprint="disk full on b")
    events = history.frame(spark)
    found = metrics.poison(metrics.attempts(events), metrics.jobs(events)).orderBy(f.desc("dead"))
    assert rows(found, "fingerprint", "failures", "jobs", "dead", "nodes", "node_names", "one_node", "last_at") == [
        ("poison", 6, 3, 3, 2, ["a", "b"], False, at(6).replace(tzinfo=None)),
        ("disk full on b", 2, 2, 0, 1, ["b"], True, at(2).replace(tzinfo=None)),
    ]


@pytest.mark.parametrize(
    ("lease", "tries", "told"),
    [
        (30, [("acked", 29)] * 50, ("longer", 30.0, 29.0, 87.0)),
        (30, [("acked", 0.5)] * 50, ("shorter", 30.0, 0.5, 1.5)),
        (30, [("acked", 10)] * 50, ("keep", 30.0, 10.0, 30.0)),
        # Claims that were abandoned ask for no longer lease.
        (60, [*[("expired", 60)] * 4, *[("acked", 33)] * 56], ("abandoned", 60.0, 33.0, 60.0)),
    ],
)
def test_lease_advice(spark: SparkSession, lease: float, tries: list[tuple[str, float]], told: tuple[Any, ...]) -> None:
    history = History(lease=lease)
    for number, (outcome, held) in enumerate(tries):
        history.job(0, ("ab"[number % 2], 1, 1 + held, outcome))
    found = metrics.lease_advice(metrics.attempts(history.frame(spark))).where("node is null")
    assert rows(found, "advice", "lease", "p99", "suggested") == [told]


def test_sums_by_tenant(spark: SparkSession) -> None:
    history = History()
    for number in range(4):
        history.job(number, ("a", number + 1, number + 3, "acked"))
    history.job(0, ("a", 10, 14, "released"), ("a", 15, 17, "failed"))
    history.job(0)
    history.job(-8 * 86_400, ("a", -8 * 86_400, -7.9 * 86_400, "acked"))
    jobs = metrics.jobs(history.frame(spark))
    named, other = '{"ten.ant": "x"}', '{"ten.ant": 7, "b": "x"}'
    tag = f.expr(f"case when seq <= 3 then '{named}' when seq > 4 then '{other}' end")
    found = metrics.tenants(jobs.withColumn("tags", tag), "ten.ant").orderBy(f.desc("seconds"), "tenant").collect()
    assert [tuple(row)[:2] + tuple(row)[4:] for row in found] == [
        ("ten.ant", "7", 2, 0, 1, 6.0, 5.5, 6 / 14),
        ("ten.ant", "x", 3, 3, 0, 6.0, 1.0, 6 / 14),
        ("ten.ant", None, 1, 1, 0, 2.0, 1.0, 2 / 14),
    ]
    assert metrics.tenants(jobs, None).count() == 0


def test_a_backlog_and_its_recovery(spark: SparkSession) -> None:
    levels = [5] * 20 + [50, 150, 900, 300] + [5] * 3 + [120, 200]
    hours = [("", "work", at(3_600 * n), level) for n, level in enumerate(levels)]
    found = metrics.recoveries(spark.createDataFrame(hours, "project string, queue string, hour timestamp, level int"))
    assert rows(found.orderBy("highest"), "highest", "ended", "seconds") == [
        (200, None, None),
        (900, at(24 * 3_600).replace(tzinfo=None), 3 * 3_600),
    ]


@pytest.mark.parametrize("after", [1.2, 3.0])
def test_a_change_is_told_from_its_day_on(spark: SparkSession, after: float) -> None:
    medians = [1.0, 1.1, 0.9, 1.0, 1.05, after, after * 1.1, after * 0.95, after]
    days = [("", "work", "run", at(86_400 * n).date(), value) for n, value in enumerate(medians)]
    schema = "project string, queue string, measure string, day date, p50 double"
    found = metrics.changes(spark.createDataFrame(days, schema)).collect()
    assert [row.day for row in found] == ([at(86_400 * 5).date()] if after == 3.0 else [])


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
        "ill", at(4 * 3_600 + 1).replace(tzinfo=None), at(6 * 3_600 + 29).replace(tzinfo=None),
    )  # fmt: skip


def test_leases_that_one_node_lets_expire_are_not_the_queues_fault(spark: SparkSession) -> None:
    history = History(lease=30)
    for number in range(50):
        history.job(0, ("a", 1, 11, "acked"))
        history.job(0, ("b", 1, 31 if number < 5 else 11, "expired" if number < 5 else "acked"))
    found = metrics.lease_advice(metrics.attempts(history.frame(spark))).orderBy(f.col("node").asc_nulls_first())
    assert rows(found, "node", "nodes", "expired", "advice") == [
        (None, 2, 5, "node"), ("a", 1, 0, "keep"), ("b", 1, 5, "abandoned"),
    ]  # fmt: skip


def test_an_empty_log_has_empty_tables(spark: SparkSession) -> None:
    events = spark.createDataFrame([], SCHEMA)
    silver, jobs = metrics.attempts(events), metrics.jobs(events)
    for frame in (metrics.latencies(silver, jobs), metrics.node_health(silver), metrics.poison(silver, jobs)):
        assert frame.agg(f.count(f.lit(1))).first() == (0,)
