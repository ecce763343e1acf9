"""Figures of a lease log, as pure functions from DataFrames to DataFrames.

They need nothing of this project but the columns of the source's table ``events`` (docs/reference/lake.md), write
nothing and start no action, so they work in a notebook, on a stream's Parquet, or over the archive. Rows come in no
order. ``attempts`` and ``jobs`` make the silver tables (of one ``fold`` when both are wanted); everything else takes
those two, or what another function gives: ``forecast`` takes ``hour_of_week``, ``workers_needed`` that forecast,
``weeks`` and ``changes`` what ``daily`` gives, ``recoveries`` a ``backlog``, ``workflows`` and ``critical_paths`` the
``workflow_paths``.
"""

from .health import changes, node_health, objectives, poison, recoveries, retry_cost, tenants, time_split
from .rates import (
    attempts_by_hour,
    attempts_by_minute,
    backlog,
    forecast,
    hour_of_week,
    in_flight,
    jobs_by_hour,
    quality,
    span,
    throughput,
    use,
    workers_needed,
)
from .spans import attempts, attempts_of, fold, jobs, jobs_of
from .times import critical_paths, daily, latencies, lease_advice, percentiles, weeks, workflow_paths, workflows

__all__ = [
    "attempts", "attempts_by_hour", "attempts_by_minute", "attempts_of", "backlog", "changes", "critical_paths",
    "daily", "fold", "forecast", "hour_of_week", "in_flight", "jobs", "jobs_by_hour", "jobs_of", "latencies",
    "lease_advice", "node_health", "objectives", "percentiles", "poison", "quality", "recoveries", "retry_cost",
    "span", "tenants", "throughput", "time_split", "use", "weeks", "workers_needed", "workflow_paths", "workflows",
]  # fmt: skip
