"""Each figure as docs/reference/lake.md defines it, computed a second time by DuckDB from the raw events."""

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from django_leasequeue.spark import metrics
from django_leasequeue.spark.metrics.rates import erlang_c
from tests.spark.helpers import at
from tests.spark.recompute import duck


class Both:
    def __init__(self, spark: SparkSession) -> None:
        self.duck, events = duck()
        self.folded = metrics.fold(spark.createDataFrame(events)).persist()
        self.attempts = metrics.attempts_of(self.folded).persist()
        self.jobs = metrics.jobs_of(self.folded).persist()

    def close(self) -> None:
        for frame in (self.folded, self.attempts, self.jobs):
            frame.unpersist()
        self.duck.close()

    def equal(self, frame: DataFrame, sql: str) -> int:
        """Compare a table of Spark's with a query over the raw events; numbers to eight places. Returns its rows."""
        described = self.duck.execute(f"DESCRIBE {sql}").fetchall()
        self.duck.register("spark_made", frame.select(*[column[0] for column in described]).toArrow())
        cells = ", ".join(
            f"round({name}, 8) AS {name}" if kind in {"DOUBLE", "FLOAT"} or "DECIMAL" in kind else name
            for name, kind, *_ in described
        )
        ours, theirs = f"SELECT {cells} FROM spark_made", f"SELECT {cells} FROM ({sql})"
        differing = self.duck.execute(
            f"SELECT 'spark' AS made_by, * FROM ({ours} EXCEPT ALL {theirs})"
            f" UNION ALL SELECT 'duckdb', * FROM ({theirs} EXCEPT ALL {ours}) ORDER BY ALL LIMIT 8"
        ).fetchall()
        assert differing == [], differing
        return one(self.duck, f"SELECT count(*) FROM ({sql})")


def one(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    row = connection.execute(sql).fetchone()
    return row[0]


@pytest.fixture(scope="module")
def both(spark: SparkSession) -> Iterator[Both]:
    made = Both(spark)
    yield made
    made.close()


def test_attempts_and_jobs(both: Both) -> None:
    assert both.equal(both.attempts, "SELECT * FROM attempts") > 2_000
    assert both.equal(both.jobs, "SELECT * FROM jobs") > 1_900
    states = {row[0] for row in both.duck.execute("SELECT DISTINCT state FROM jobs").fetchall()}
    assert states == {"completed", "failed", "dead", "cancelled", "redriven", "open"}


@pytest.mark.parametrize(
    ("figure", "table", "begin"), [("backlog", "jobs", "enqueued_at"), ("in_flight", "attempts", "claimed_at")]
)
def test_levels(both: Both, figure: str, table: str, begin: str) -> None:
    frame = metrics.backlog(both.jobs) if figure == "backlog" else metrics.in_flight(both.attempts)
    both.equal(
        frame,
        f"""
        WITH h AS (SELECT DISTINCT project, queue,
            unnest([date_trunc('hour', {begin}), date_trunc('hour', ended_at)]) AS hour FROM {table})
        SELECT h.project, h.queue, hour, count(*) FILTER (
            WHERE {begin} < hour + INTERVAL 1 HOUR AND coalesce(ended_at >= hour + INTERVAL 1 HOUR, true)) AS level
        FROM h JOIN {table} t ON t.project = h.project AND t.queue = h.queue WHERE hour IS NOT NULL GROUP BY ALL""",
    )


@pytest.mark.matrix
def test_how_well_queues_serve(both: Both) -> None:
    week = "claimed_at > (SELECT max(claimed_at) FROM attempts WHERE {0}) - INTERVAL 7 DAY AND {0}"
    held, started = week.format("held IS NOT NULL AND NOT unstarted"), week.format("NOT unstarted")
    both.equal(
        metrics.objectives(both.attempts, 20.0),
        f"""
        SELECT project, queue, 20.0 AS wanted_wait, count(*) AS n, count(*) FILTER (WHERE waited <= 20) AS in_time,
            count(*) FILTER (WHERE waited <= 20) / count(*) AS share,
            1 - (count(*) FILTER (WHERE waited > 20) / count(*)) / 0.01::DOUBLE AS budget_left
        FROM attempts WHERE {started} GROUP BY ALL""",
    )
    both.equal(
        metrics.retry_cost(both.attempts),
        f"""
        WITH q AS (SELECT project, queue, sum(held) AS whole FROM attempts WHERE {held} GROUP BY ALL)
        SELECT project, queue, task, outcome, error_type, count(*) AS n, sum(held) AS seconds,
            sum(held) / any_value(whole) AS share
        FROM attempts JOIN q USING (project, queue) WHERE {held} AND outcome IN ('failed', 'released', 'expired')
        GROUP BY ALL""",
    )
    both.equal(
        metrics.time_split(both.jobs).withColumns({name: f.round(name, 3) for name in ("delay", "retry_wait")}),
        """
        WITH j AS (SELECT *, epoch_us(ended_at - enqueued_at) / 1e6 AS total FROM jobs WHERE deliveries > 0),
        w AS (SELECT * FROM j WHERE ended_at > (SELECT max(ended_at) FROM j) - INTERVAL 7 DAY),
        p AS (SELECT seq, sum(waited) AS ready, coalesce(sum(held), 0) AS run, greatest(0, max(
            epoch_us(claimed_at) / 1e6 - waited - epoch_us(f.enqueued_at) / 1e6) FILTER (WHERE attempt = 1))
            AS delay FROM attempts JOIN firsts f USING (seq) GROUP BY seq)
        SELECT project, queue, count(*) AS n, sum(w.total) AS total, round(sum(p.delay), 3) AS delay,
            sum(p.ready) AS ready, sum(p.run) AS run,
            round(sum(greatest(0, w.total - p.delay - p.ready - p.run)), 3) AS retry_wait
        FROM w JOIN p USING (seq) GROUP BY ALL""",
    )
    both.equal(
        metrics.use(both.attempts),
        """
        WITH m AS (SELECT DISTINCT project, queue, unnest([date_trunc('minute', claimed_at),
            date_trunc('minute', ended_at)]) AS minute FROM attempts),
        l AS (SELECT m.project, m.queue, minute, count(*) FILTER (WHERE claimed_at < minute + INTERVAL 1 MINUTE
                AND coalesce(ended_at >= minute + INTERVAL 1 MINUTE, true)) AS level
            FROM m JOIN attempts t ON t.project = m.project AND t.queue = m.queue WHERE minute IS NOT NULL
            GROUP BY ALL),
        h AS (SELECT project, queue, date_trunc('hour', minute) AS hour, max(level) AS most FROM l GROUP BY ALL),
        w AS (SELECT project, queue, date_trunc('hour', claimed_at) AS hour, count(DISTINCT node) AS nodes,
            sum(held) / 3600 AS busy FROM attempts GROUP BY ALL)
        SELECT project, queue, hour, coalesce(nodes, 0) AS nodes, coalesce(busy, 0) AS busy, most
        FROM h LEFT JOIN w USING (project, queue, hour)""",
    )


def test_throughput(both: Both) -> None:
    both.equal(
        metrics.throughput(both.attempts, both.jobs),
        """
        WITH r AS (
            SELECT project, queue, task, enqueued_at AS moment, 'enqueued' AS what FROM jobs
            UNION ALL SELECT project, queue, task, ended_at, if(state = 'completed', state, 'failed') FROM jobs
            UNION ALL SELECT project, queue, task, claimed_at, unnest(list_filter([
                'claimed', if(attempt > 1, 'redelivered', NULL), if(outcome <> 'running', 'ended', NULL),
                if(outcome IN ('failed', 'released', 'expired') AND NOT unstarted, 'bad', NULL)],
                lambda word: word IS NOT NULL)) FROM attempts
        ), c AS (SELECT project, queue, task, date_trunc('hour', moment) AS hour, what, count(*)::DOUBLE AS n
            FROM r WHERE moment IS NOT NULL GROUP BY ALL),
        p AS (PIVOT c ON what IN
            ('enqueued', 'claimed', 'completed', 'failed', 'redelivered', 'ended', 'bad') USING sum(n))
        SELECT project, queue, task, hour, coalesce(enqueued, 0) AS enqueued, coalesce(claimed, 0) AS claimed,
            coalesce(completed, 0) AS completed, coalesce(failed, 0) AS failed, coalesce(redelivered, 0) AS redelivered,
            coalesce(bad, 0) / ended AS failure_rate, coalesce(redelivered, 0) / claimed AS redelivery_rate FROM p""",
    )


VALUES = """
    SELECT project, queue, task, 'wait' AS measure, claimed_at AS begun, waited AS value FROM attempts
        WHERE NOT unstarted
    UNION ALL SELECT project, queue, task, 'run', claimed_at, ran FROM attempts WHERE NOT unstarted
    UNION ALL SELECT project, queue, task, 'total', ended_at, epoch_us(ended_at - enqueued_at) / 1e6
        FROM jobs WHERE state = 'completed'"""


def test_latency(both: Both) -> None:
    """With fewer than 10,000 values an hour its percentiles are exact: the value at the rank, rounded up."""
    points = ", ".join(
        f"list_sort(list(value))[ceil({p} * count(*))::INT] AS p{round(p * 100)}" for p in (0.5, 0.95, 0.99)
    )
    both.equal(
        metrics.latencies(both.attempts, both.jobs).where("of = 'task'").drop("of", "sketch"),
        f"SELECT project, queue, task, measure, date_trunc('hour', begun) AS hour, count(*) AS n, {points},"
        f" max(value) AS highest FROM ({VALUES}) WHERE value IS NOT NULL GROUP BY ALL",
    )


def test_a_weeks_percentiles_are_those_of_its_days_together(both: Both) -> None:
    """Within half a percent of the rank, whatever is merged; sketches of few values are exact."""
    daily = metrics.daily(both.attempts, both.jobs)
    both.equal(
        daily.drop("sketch"),
        f"SELECT project, queue, measure, begun::DATE AS day, count(*) AS n, max(value) AS highest FROM ({VALUES})"
        " WHERE value IS NOT NULL GROUP BY ALL",
    )
    both.duck.execute(f"CREATE OR REPLACE TEMP TABLE v AS SELECT * FROM ({VALUES}) WHERE value IS NOT NULL")
    for row in metrics.percentiles(daily, "measure").drop("sketch").collect():
        assert row.n == one(both.duck, f"SELECT count(*) FROM v WHERE measure = '{row.measure}'")
        for point, value in ((0.5, row.p50), (0.95, row.p95), (0.99, row.p99)):
            low, high = both.duck.execute(
                f"SELECT avg((value < ?)::INT), avg((value <= ?)::INT) FROM v WHERE measure = '{row.measure}'",
                [value, value],
            ).fetchone() or (2, -1)
            assert low - 0.005 <= point <= high + 0.005


def test_nodes(both: Both) -> None:
    """Expected of a node: the others' rate on each of its queues, weighted by its own attempts there."""
    both.equal(
        metrics.node_health(both.attempts),
        """
        WITH a AS (SELECT *, outcome IN ('failed', 'released', 'expired') AS bad FROM attempts
            WHERE outcome <> 'running' AND NOT unstarted),
        x AS (SELECT a.*, (SELECT avg(b.bad::INT) FROM a b
            WHERE b.project = a.project AND b.queue = a.queue AND b.node <> a.node) AS other FROM a)
        SELECT node, count(*) AS n, count(*) FILTER (WHERE bad) AS unsuccessful,
            count(*) FILTER (WHERE outcome = 'expired') AS expired, count(other) AS compared,
            avg(bad::INT) FILTER (WHERE other IS NOT NULL) AS rate, avg(other) AS others_rate,
            (avg(bad::INT) FILTER (WHERE other IS NOT NULL) - avg(other))
                / sqrt(greatest(avg(other) * (1 - avg(other)), 1e-4) / nullif(count(other), 0)) AS sigmas,
            min(claimed_at) AS first_at, max(claimed_at) AS last_at
        FROM x GROUP BY node""",
    )
    found = {row.node: row for row in metrics.node_health(both.attempts).collect()}
    # Of worker-9 half of what it does fails, but nobody else works there.
    verdicts = {"worker-1": "well", "worker-2": "well", "worker-3": "sick", "worker-9": "unknown"}
    assert {name: row.verdict for name, row in found.items()} == verdicts


def test_the_time_of_an_illness(both: Both) -> None:
    """All spans of hours tried: that with the most unsuccessful attempts above what is tolerated."""
    (ill,) = metrics.node_health(both.attempts).where("verdict = 'sick'").collect()
    hours = f"""
        SELECT date_trunc('hour', claimed_at) AS hour, sum(if(outcome IN ('failed', 'released', 'expired'), 1, 0)
            - ({ill.others_rate} + 0.05)) AS excess
        FROM attempts WHERE node = 'worker-3' AND outcome <> 'running' AND NOT unstarted GROUP BY ALL"""
    span = f"""
        WITH h AS MATERIALIZED ({hours}) SELECT f.hour AS a, t.hour AS z FROM h f JOIN h t ON t.hour >= f.hour
        ORDER BY (SELECT sum(excess) FROM h WHERE hour BETWEEN f.hour AND t.hour) DESC LIMIT 1"""
    since = one(
        both.duck,
        f"SELECT min(claimed_at) FROM attempts, ({span}) WHERE node = 'worker-3'"
        " AND date_trunc('hour', claimed_at) BETWEEN a AND z"
        " AND outcome IN ('failed', 'released', 'expired') AND NOT unstarted",
    )
    assert ill.ill_since == since.replace(tzinfo=None)
    assert ill.ill_until is None


def test_speed(both: Both) -> None:
    took = f.when(f.col("node") == "worker-2", 3.0 * f.col("ran")).otherwise(f.col("ran"))
    found = metrics.node_health(both.attempts.withColumn("ran", took))
    quick, slow = found.where("node in ('worker-1', 'worker-2')").orderBy("node").collect()
    assert (quick.verdict, slow.verdict) == ("well", "slow")
    speed = one(
        both.duck,
        """
        WITH r AS (SELECT *, if(node = 'worker-2', 3 * ran, ran) AS took FROM attempts WHERE ran IS NOT NULL),
        o AS (SELECT project, queue, task, exp(avg(ln(took))) AS usual FROM r WHERE node <> 'worker-2' GROUP BY ALL)
        SELECT exp(avg(ln(took / usual))) FROM r JOIN o USING (project, queue, task) WHERE node = 'worker-2'""",
    )
    assert slow.speed == pytest.approx(speed)
    assert slow.ill_since is not None


def test_poison(both: Both) -> None:
    both.equal(
        metrics.poison(both.attempts, both.jobs),
        """
        SELECT project, queue, task, fingerprint, max(error_type) AS error_type, count(*) AS failures,
            count(DISTINCT seq) AS jobs,
            count(DISTINCT node) AS nodes, min(ended_at) AS first_at, max(ended_at) AS last_at,
            (SELECT count(*) FROM jobs j WHERE j.state IN ('dead', 'failed') AND j.fingerprint = a.fingerprint
                AND j.project = a.project AND j.queue = a.queue AND j.task = a.task) AS dead
        FROM attempts a WHERE fingerprint <> '' GROUP BY ALL""",
    )
    assert "lease_expired" in {row.fingerprint for row in metrics.poison(both.attempts, both.jobs).collect()}


def test_lease_advice(both: Both) -> None:
    """By node and queue, and by queue; held times without those of expired leases."""
    grouped = """
        SELECT project, queue, {node} AS node, count(DISTINCT node) AS nodes, count(*) AS n,
            list_sort(list(lease))[ceil(.5 * count(*))::INT] AS lease,
            list_sort(list(held) FILTER (WHERE outcome <> 'expired'))[
                    ceil(.99 * count(*) FILTER (WHERE outcome <> 'expired'))::INT] AS p99,
            count(*) FILTER (WHERE outcome <> 'expired' AND extensions = 0 AND held > 0.8 * lease) AS near,
            count(*) FILTER (WHERE outcome = 'expired') AS expired, count(*) FILTER (WHERE extensions > 0) AS extended
        FROM attempts a WHERE outcome NOT IN ('running', 'cancelled') AND NOT unstarted GROUP BY ALL"""
    sql = grouped.format(node="a.node") + " UNION ALL " + grouped.format(node="NULL::VARCHAR")
    assert both.equal(metrics.lease_advice(both.attempts), sql) == 14


def test_hours_of_the_week(both: Both) -> None:
    """Hours without a job count: from the first hour of a queue to the newest full one of all."""
    weekly = metrics.hour_of_week(both.attempts, both.jobs).persist()
    both.duck.execute(
        """
        CREATE OR REPLACE TEMP TABLE w AS
        WITH ends AS (SELECT date_trunc('hour', max(begun)) - INTERVAL 1 HOUR AS newest FROM (
            SELECT enqueued_at AS begun FROM jobs UNION ALL SELECT claimed_at FROM attempts)),
        h AS (SELECT project, queue, unnest(generate_series(date_trunc('hour', min(enqueued_at)),
            (SELECT newest FROM ends), INTERVAL 1 HOUR)) AS hour FROM jobs GROUP BY project, queue)
        SELECT h.*, (isodow(hour) - 1) * 24 + hour(hour) AS hour_of_week,
            (SELECT count(*) FROM jobs j WHERE j.project = h.project AND j.queue = h.queue
                AND date_trunc('hour', enqueued_at) = hour) AS n,
            (SELECT coalesce(sum(ran), 0) FROM attempts a
                WHERE a.project = h.project AND a.queue = h.queue AND date_trunc('hour', claimed_at) = hour) AS busy
        FROM h"""
    )
    both.equal(
        weekly,
        "SELECT project, queue, hour_of_week, count(*) AS weeks, median(n) AS arrivals, max(n) AS peak,"
        " avg(busy) / 3600 AS load FROM w GROUP BY ALL",
    )
    assert one(both.duck, "SELECT count(*) FROM w WHERE n = 0") > 100
    both.equal(
        metrics.forecast(weekly),
        """
        WITH a AS (SELECT *, date_diff('hour', hour, (SELECT max(hour) FROM w)) AS age FROM w),
        t AS (SELECT project, queue, greatest(0.5, least(2, sum(n) FILTER (WHERE age < 168)
            / sum(n) FILTER (WHERE age BETWEEN 168 AND 335))) AS trend FROM a GROUP BY ALL)
        SELECT project, queue, hour_of_week, trend, median(n) * any_value(trend) AS expected
            FROM w JOIN t USING (project, queue) GROUP BY ALL""",
    )
    weekly.unpersist()


def test_workers_needed(both: Both, spark: SparkSession) -> None:
    """Erlang's C formula by its sum instead of its recursion, and the fewest workers that hold the wait."""
    both.duck.execute(
        """
        CREATE OR REPLACE MACRO last(a, c) AS a ** c / gamma(c + 1) * c / (c - a);
        CREATE OR REPLACE MACRO waits(a, c) AS
            (SELECT last(a, c) / (sum(a ** k / gamma(k + 1)) + last(a, c)) FROM range(c::INT) r(k))"""
    )
    for load, count in ((0.5, 1), (8, 10), (3.7, 5), (20, 24)):
        assert erlang_c(load, count) == pytest.approx(one(both.duck, f"SELECT waits({load}::DOUBLE, {count}::DOUBLE)"))
    expected = spark.createDataFrame(
        [(float(n), run, 1.2) for n, run in ((10, 2.0), (900, 3.0), (5_000, 8.0))],
        "expected double, run double, per_job double",
    )
    for row in metrics.workers_needed(expected, wait=5.0).collect():
        load = row.expected * row.per_job / 3600 * row.run
        late = f"waits({load}::DOUBLE, c::DOUBLE) * exp(-(c - {load}) * 5 / {row.run})"
        fewest = f"SELECT min(c) FROM range({int(load) + 1}, 200) r(c) WHERE {late} <= 0.01"
        assert row.workers == one(both.duck, fewest)


def test_quality(both: Both, spark: SparkSession) -> None:
    found = {row.check: (row.rows, row.violations) for row in metrics.quality(both.attempts, both.jobs).collect()}
    jobs, attempts = one(both.duck, "SELECT count(*) FROM jobs"), one(both.duck, "SELECT count(*) FROM attempts")
    assert {rows for rows, _ in found.values()} == {jobs, attempts}
    assert {violations for _, violations in found.values()} == {0}
    noon, later = at(0), at(1)
    wrong_jobs = [
        *[(1, "open", 0, noon, None)] * 3, (2, "completed", 1, later, noon), (3, "open", 0, noon, later),
        (4, "dead", 1, noon, None), (5, "completed", 0, noon, later), (6, "completed", 1, noon, noon),
    ]  # fmt: skip
    wrong_attempts = [
        *[(1, 1, "a", noon, noon, later, 1.0, 1.0)] * 2, (1, 2, "a", noon, noon, None, None, None),
        (2, 1, "a", noon, later, noon, None, None), (3, 1, "a", later, noon, later, 1.0, 1.0),
        (4, 1, None, noon, noon, later, 1.0, 1.0), (5, 1, "a", noon, noon, later, 2.1, 1.0),
        (6, 1, "a", noon, noon, later, 1.9, 1.0),
    ]  # fmt: skip
    times = "enqueued_at timestamp, claimed_at timestamp, ended_at timestamp"
    told = spark.createDataFrame(
        wrong_attempts, f"seq bigint, attempt int, node string, {times}, ran double, held double"
    )
    ended = "seq bigint, state string, deliveries int, enqueued_at timestamp, ended_at timestamp"
    made = metrics.quality(told, spark.createDataFrame(wrong_jobs, ended))
    assert {row.check: (row.rows, row.violations) for row in made.collect()} == {
        "a job has one row": (8, 2), "a job ends after it was enqueued": (8, 1),
        "a job that is over has an end": (8, 2), "a completed job was claimed": (8, 1),
        "an attempt has one row": (8, 1), "an attempt ends after its claim": (8, 1),
        "an attempt is claimed after its job was enqueued": (8, 1), "an attempt has a node": (8, 1),
        "a handler runs no longer than its lease is held": (8, 1),
    }  # fmt: skip
