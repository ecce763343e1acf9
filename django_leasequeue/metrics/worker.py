"""The figures on a worker's health port for Prometheus: ``/metrics`` its own, ``/metrics/queues`` its database's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections

from ..engine.pool import patiently
from . import load_extra
from .prometheus import QueueCollector, exposition, pools

if TYPE_CHECKING:
    from prometheus_client import Metric

#: Counts of a worker, as its report names them.
OUTCOMES = ("claimed", "completed", "failed", "retried", "returned", "suspended", "lost")

_TEXT = "text/plain; charset=utf-8"
#: (status, content type, body), for the header ``Accept`` of a request.
Answer = tuple[int, str, bytes]
Page = Callable[[str], Answer]


def families(well: bool, reports: Sequence[Mapping[str, Any]], ended: Mapping[str, int]) -> Iterator[Metric]:
    """Yield a worker's families of figures: whether it is ``well``, reports of its processes, counts of ended ones."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    jobs = CounterMetricFamily(
        "leasequeue_worker_jobs", "Jobs of this worker since its start, by what became of them.", labels=["outcome"]
    )
    for outcome in OUTCOMES:
        jobs.add_metric([outcome], ended.get(outcome, 0) + sum(report.get(outcome, 0) for report in reports))
    yield jobs
    for name, text, value in (
        ("held", "Jobs that this worker holds, running or waiting.", sum(each.get("held", 0) for each in reports)),
        ("running", "Jobs that this worker runs.", sum(each.get("running", 0) for each in reports)),
        ("processes", "Processes of this worker that have reported.", sum(1 for each in reports if each)),
        ("healthy", "1 while this worker is well.", int(well)),
        (
            "database_reached",
            "1 while every process of this worker reaches the database.",
            int(all(each.get("database") != "unreached" for each in reports)),
        ),
    ):
        yield GaugeMetricFamily(f"leasequeue_worker_{name}", text, value=value)
    yield from pools()


def worker_page(report: Callable[[], tuple[bool, Sequence[Mapping[str, Any]], Mapping[str, int]]]) -> Page:
    """Return the page with a worker's own figures; ``report`` gives the arguments of ``families``."""

    def answer(accept: str) -> Answer:
        load_extra("prometheus_client", "prometheus")
        body, content_type = exposition(families(*report()), accept)
        return 200, content_type, body

    return _told(answer)


def queue_page(using: str) -> Page:
    """Return the page with the figures of a database, for deployments that have no web server."""

    def answer(accept: str) -> Answer:
        try:
            with patiently(using):
                body, content_type = exposition(QueueCollector(using).collect(), accept)
        except (Error, psycopg.Error) as error:
            return 503, _TEXT, f"The database did not answer: {error}".encode()
        finally:
            # Each request has a thread of its own.
            connections.close_all()
        return 200, content_type, body

    return _told(answer)


def no_queue_page(accept: str) -> Answer:
    """Answer that a supervisor of processes has no connection to the database."""
    why = "A worker of several processes has no figures of queues: read the view /metrics, or one with --processes 1."
    return 404, _TEXT, why.encode()


def _told(page: Page) -> Page:
    """Return a page that says what to install where that is missing."""

    def answer(accept: str) -> Answer:
        try:
            return page(accept)
        except ImproperlyConfigured as error:
            return 501, _TEXT, str(error).encode()

    return answer
