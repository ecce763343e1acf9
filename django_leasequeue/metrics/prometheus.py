"""The figures of a database, and of a worker, for Prometheus (extra ``prometheus``).

A worker's health port has ``/metrics``, its own figures, and ``/metrics/queues``, those of its database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections

from ..engine import Counts
from ..engine.pool import patiently, usage
from ..engine.queues import routing
from . import load_extra
from .figures import BOUNDS, Ages, DatabaseFigures, Histogram, LogCounts, Rest, SuspendedJobs, look_at

if TYPE_CHECKING:
    from prometheus_client import Metric

#: Counts of a worker, as its report names them.
OUTCOMES = ("claimed", "completed", "failed", "retried", "returned", "suspended", "lost")
#: The label of the queues that are summed up: no queue can be named so.
OTHER = ("", "(other)")
EVENTS = (
    *("enqueued", "claimed", "completed", "failed", "retried", "returned", "suspended"),
    *("expired", "dead_lettered", "redriven", "cancelled"),
)
STATES = ("running", "draining", "gone")
QUEUE = ("project", "queue")

#: (project, queue) -> whether to show it.
Sees = Callable[[str, str], bool]
Place = tuple[str, str]

_TEXT = "text/plain; charset=utf-8"
#: (status, content type, body), for the header ``Accept`` of a request.
Answer = tuple[int, str, bytes]
Page = Callable[[str], Answer]
#: Figures by the values of their labels; ``None``: there is none.
Figures = Iterable[tuple[Sequence[str], float | None]]


class QueueCollector:
    """A collector of ``prometheus_client`` with the figures of a database.

    Register it to have them on a page of your own: ``prometheus_client.REGISTRY.register(QueueCollector())``. It reads
    them on Django's connection of the thread that collects, at most every ``CACHE_SECONDS``.

    Args:
        using: alias of the database; by default all that hold queues, each figure with the label ``database`` if they
            are several.

    Raises:
        ImproperlyConfigured: prometheus-client is not installed.
    """

    def __init__(self, using: str | None = None) -> None:
        load_extra("prometheus_client", "prometheus")
        self._using = using

    def describe(self) -> list[Metric]:
        """Return nothing, so that a registration does not read the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        aliases = routing.aliases() if self._using is None else [self._using]
        if len(aliases) == 1:
            yield from families(look_at(aliases[0]))
        else:
            looks: dict[str, DatabaseFigures | None] = {}
            for alias in aliases:
                try:
                    looks[alias] = look_at(alias)
                except (Error, psycopg.Error):
                    looks[alias] = None
                    connections[alias].close()
            yield from of_each(looks)
        yield from pools()


def _family(name: str, text: str, labels: Sequence[str], figures: Figures, *, counter: bool = False) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    family = (CounterMetricFamily if counter else GaugeMetricFamily)(f"leasequeue_{name}", text, labels=labels)
    for values, figure in figures:
        if figure is not None:
            family.add_metric(values, figure)
    return family


def of_each(looks: Mapping[str, DatabaseFigures | None], sees: Sees | None = None) -> Iterator[Metric]:
    """Yield the families of figures of several databases, each with its alias; ``None``: it did not answer."""
    reached = [([alias], look is not None) for alias, look in looks.items()]
    yield _family("database_reached", "1 while a database answers.", ["database"], reached)
    merged: dict[str, Metric] = {}
    for alias, look in looks.items():
        for metric in () if look is None else families(look, sees):
            samples = [each._replace(labels={"database": alias, **each.labels}) for each in metric.samples]
            kept = merged.setdefault(metric.name, metric)
            kept.samples = samples if kept is metric else kept.samples + samples
    yield from merged.values()


def families(look: DatabaseFigures, sees: Sees | None = None) -> Iterator[Metric]:
    """Yield the families of figures of a look: of what ``sees`` shows; or of all, and the sum of other queues."""
    shown = [counts for counts in look.queues if sees is None or sees(counts.project, counts.queue)]
    yield from _queues(look, shown, whole=sees is None)
    yield from _log(look.log, shown, whole=sees is None)
    yield from _of_projects(look, sees)
    yield from _database(look)


def _queues(look: DatabaseFigures, shown: Sequence[Counts], *, whole: bool) -> Iterator[Metric]:
    places = [(counts.project, counts.queue) for counts in shown]
    ages = [look.ages.get(counts.queue_id, Ages()) for counts in shown]
    lines: list[tuple[Place, Counts | Rest]] = list(zip(places, shown, strict=True))
    if whole and look.rest.queues:
        lines.append((OTHER, look.rest))
    states = [((*place, state), count) for place, counts in lines for state, count in _states(counts).items()]
    text = "Jobs of a queue by state; from 1,000 on as of the newest sample."
    yield _family("jobs", text, [*QUEUE, "state"], states)
    values: Sequence[float | None]
    for name, text, values in (
        ("oldest_ready_age_seconds", "Time since the oldest ready job became ready.", [age.ready for age in ages]),
        ("oldest_overdue_lease_age_seconds", "Age of the oldest overdue lease.", [age.overdue for age in ages]),
        ("floor_age_seconds", "Time since the floors of a queue were raised last.", [age.floor for age in ages]),
        ("queue_paused", "1 while a queue is paused.", [counts.paused_at is not None for counts in shown]),
    ):
        yield _family(name, text, QUEUE, zip(places, values, strict=True))
    dead = [(place, counts.dead_lettered) for place, counts in lines]
    yield _family("dead_lettered", "Jobs of a queue that have become dead letters.", QUEUE, dead, counter=True)
    mended = [(place, age.mended) for place, age in zip(places, ages, strict=True)]
    yield _family("floors_mended", "Floors that hid a waiting job, and were lowered.", QUEUE, mended, counter=True)


def _states(counts: Counts | Rest) -> dict[str, int]:
    # Samples count waiting jobs as delayed.
    waiting = min(counts.waiting, counts.delayed) if isinstance(counts, Counts) else 0
    free = {"ready": counts.ready, "delayed": counts.delayed - waiting, "waiting": waiting}
    return {**free, "leased": counts.in_flight, "dead": counts.dead, "record": counts.records}


def _log(log: LogCounts, shown: Sequence[Counts], *, whole: bool) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    places: dict[int, Place] = {counts.queue_id: (counts.project, counts.queue) for counts in shown}
    rest = OTHER if whole else None
    sums: dict[tuple[Place, str], int] = {(place, event): 0 for place in places.values() for event in EVENTS}
    for (queue_id, event), count in log.events.items():
        if (place := places.get(queue_id, rest)) is not None:
            sums[place, event] = sums.get((place, event), 0) + count
    happened = [((*place, event), count) for (place, event), count in sums.items()]
    text = "What happened to jobs since the last full hour, by the lease log."
    yield _family("job_events", text, [*QUEUE, "event"], happened, counter=True)
    ends = [*(f"{bound / 1_000:g}" for bound in BOUNDS), "+Inf"]
    for name, text, times in (
        ("leasequeue_job_wait_seconds", "Time from ready to claim, since the last full hour.", log.waits),
        ("leasequeue_job_run_seconds", "Time that handlers ran, since the last full hour.", log.runs),
    ):
        family = HistogramMetricFamily(name, text, labels=QUEUE)
        found: dict[Place, Histogram] = {}
        for queue_id, histogram in times.items():
            if (place := places.get(queue_id, rest)) is not None:
                found[place] = found.get(place, Histogram()).together(histogram)
        for place, histogram in found.items():
            buckets = list(zip(ends, map(float, accumulate(histogram.places)), strict=True))
            family.add_metric(place, buckets, histogram.total_ms / 1_000)
        yield family


def _of_projects(look: DatabaseFigures, sees: Sees | None) -> Iterator[Metric]:
    """Yield what is counted by project and shown as a sum."""
    workers = dict.fromkeys(STATES, 0)
    for (project, state), count in look.workers.items():
        if sees is None or sees(project, ""):
            workers[state] = workers.get(state, 0) + count
    text = "Workers by state, as their rows say."
    yield _family("workers", text, ["state"], (([state], count) for state, count in workers.items()))
    kinds: dict[str, list[SuspendedJobs]] = {"event": [], "sleep": []}
    for each in look.suspended:
        if sees is None or sees(each.project, ""):
            kinds[each.kind].append(each)
    many = "Jobs that sleep or wait for an event, at most 10,000 of a kind."
    jobs = (([kind], sum(each.jobs for each in found)) for kind, found in kinds.items())
    yield _family("suspended_jobs", many, ["kind"], jobs)
    ages = (([kind], max((each.oldest for each in found), default=0)) for kind, found in kinds.items())
    yield _family("suspended_age_seconds", "Age of the oldest suspended job.", ["kind"], ages)
    paused = [each for each in look.paused if sees is None or sees(each.project, "")]
    yield _family("paused_tasks", "Paused tasks.", (), [((), sum(each.tasks for each in paused))])
    held = "Jobs that workers gave back because their task is paused, at most 10,000."
    yield _family("paused_jobs", held, (), [((), sum(each.jobs for each in paused))])


def _database(look: DatabaseFigures) -> Iterator[Metric]:
    yield _family("reaper_leader", "1 while a reaper leads.", (), [((), int(look.leader is not None))])
    duties = look.leader.duties if look.leader else []
    late = "1 while a duty of the reaper has not succeeded for three of its intervals, at least half a minute."
    yield _family("reaper_duty_late", late, ["duty"], [([each["name"]], int(each["late"])) for each in duties])
    age = "Time since a duty of the reaper succeeded, or since its leader began."
    ages = [([each["name"]], each["succeeded"]) for each in duties]
    yield _family("reaper_duty_success_age_seconds", age, ["duty"], ages)
    horizon = "Age of the oldest transaction that keeps PostgreSQL from cleaning up behind the queues."
    yield _family("horizon_age_seconds", horizon, (), [((), look.horizon)])
    text = "Rows of the lease log above the horizon, after a restore: run manage.py leasequeue_restored."
    yield _family("events_above_horizon", text, (), [((), look.above)])
    for name, text, figure in (
        ("lag_seconds", "Age of the first event that a registered consumer of the lease log has not read.", "seconds"),
        ("lag_transactions", "Transactions of the cluster since what a registered consumer has read.", "transactions"),
        ("given_up", "1 while retention waits for a registered consumer no longer.", "given_up"),
    ):
        lags = [([lag.consumer], getattr(lag, figure)) for lag in look.lags]
        yield _family(f"lake_{name}", text, ["consumer"], lags)


def pools() -> Iterator[Metric]:
    """Yield the use of this process's pools of async connections."""
    states = ("used", "idle", "waiting")
    figures = [
        ((using, state), count) for using, use in usage().items() for state, count in zip(states, use, strict=True)
    ]
    text = "Async connections of this process by state; waiting: callers that wait for one."
    yield _family("pool_connections", text, ["database", "state"], figures)


def streams(count: int, waiting: int, cut_off: int) -> Iterator[Metric]:
    """Yield the event streams of this process: how many are open, bytes that wait for clients, slow clients."""
    yield _family("streams", "Event streams that are open in this process.", (), [((), count)])
    text = "Bytes that wait for the clients of this process's event streams."
    yield _family("stream_waiting_bytes", text, (), [((), waiting)])
    text = "Event streams that this process has cut off because their clients did not read."
    yield _family("streams_cut_off", text, (), [((), cut_off)], counter=True)


def exposition(found: Iterable[Metric], accept: str) -> tuple[bytes, str]:
    """Return figures as the body of an answer and its content type, by the header ``Accept``: text, or OpenMetrics."""
    load_extra("prometheus_client", "prometheus")
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    class Found(CollectorRegistry):
        def collect(self) -> Iterable[Metric]:
            return found

    encoder, content_type = choose_encoder(accept)
    return encoder(Found()), content_type


def worker_families(well: bool, reports: Sequence[Mapping[str, Any]], ended: Mapping[str, int]) -> Iterator[Metric]:
    """Yield a worker's families of figures: whether it is ``well``, reports of its processes, counts of ended ones."""

    def since_start(name: str) -> int:
        counts: list[int] = [report.get(name, 0) for report in reports]
        return ended.get(name, 0) + sum(counts)

    jobs = [([name], since_start(name)) for name in OUTCOMES]
    text = "Jobs of this worker since its start, by what became of them."
    yield _family("worker_jobs", text, ["outcome"], jobs, counter=True)
    for name, text in (
        ("batches", "Runs of batch tasks in this worker since its start."),
        ("batched_jobs", "Jobs of these runs."),
    ):
        yield _family(f"worker_{name}", text, (), [((), since_start(name))], counter=True)
    for name, text, value in (
        ("held", "Jobs that this worker holds, running or waiting.", sum(each.get("held", 0) for each in reports)),
        ("running", "Jobs that this worker runs.", sum(each.get("running", 0) for each in reports)),
        ("suspects", "Suspects that this worker runs.", sum(each.get("suspects", 0) for each in reports)),
        (
            "alone_seconds",
            "Seconds for which this worker has run a suspect alone and started nothing else.",
            max((each.get("alone_seconds", 0) for each in reports), default=0),
        ),
        ("processes", "Processes of this worker that have reported.", sum(1 for each in reports if each)),
        ("healthy", "1 while this worker is well.", int(well)),
        (
            "database_reached",
            "1 while every process of this worker reaches the database.",
            int(all(each.get("database") != "unreached" for each in reports)),
        ),
    ):
        yield _family(f"worker_{name}", text, (), [((), value)])
    yield from pools()


def worker_page(report: Callable[[], tuple[bool, Mapping[str, Any]]], ended: Mapping[str, int]) -> Page:
    """Return the page of a worker's own figures: the reports of its processes, and the counts of ended ones."""

    def answer(accept: str) -> Answer:
        well, found = report()
        body, content_type = exposition(worker_families(well, found.get("workers", [found]), ended), accept)
        return 200, content_type, body

    return _with_install_hint(answer)


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

    return _with_install_hint(answer)


def no_queue_page(accept: str) -> Answer:
    """Answer that a supervisor of processes has no connection to the database."""
    why = "A worker of several processes has no figures of queues: read the view /metrics, or one with --processes 1."
    return 404, _TEXT, why.encode()


def _with_install_hint(page: Page) -> Page:
    """Return a page that names the missing extra as status 501."""

    def answer(accept: str) -> Answer:
        try:
            return page(accept)
        except ImproperlyConfigured as error:
            return 501, _TEXT, str(error).encode()

    return answer
