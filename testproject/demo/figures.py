"""What came of a run of the demo: counted in the database, for the progress bar and the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Min, Sum

from django_leasequeue.models import Job, JobResult, JobState, Queue

from .models import SourceReport


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the jobs of the queue are now."""

    completed: int
    dead: int
    waiting: int
    running: int
    retrying: int

    @property
    def ended(self) -> int:
        """Jobs that will not change any more."""
        return self.completed + self.dead

    @property
    def left(self) -> int:
        """Jobs that still will."""
        return self.waiting + self.running + self.retrying


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead letters of one cause."""

    count: int
    error_type: str
    example: str


@dataclass(frozen=True, slots=True)
class Summary:
    """A finished run. Times in milliseconds, as (half of the jobs, 99 of 100 jobs) are quicker."""

    completed: int
    seconds: float
    lines: int
    functions: int
    wait: tuple[float, float]
    run: tuple[float, float]
    retries: int
    dead: list[DeadGroup]

    @property
    def per_second(self) -> float:
        """Completed jobs a second, from the enqueue to the last one that succeeded."""
        return self.completed / self.seconds if self.seconds else 0.0


def progress(queue: Queue, since: datetime) -> Progress:
    """Count the jobs of a run that began at ``since``."""
    states = dict(Job.objects.filter(queue=queue).values_list("state").annotate(number=Count("seq")))
    return Progress(
        completed=JobResult.objects.filter(queue=queue, created_at__gte=since).count(),
        dead=states.get(JobState.DEAD, 0),
        waiting=states.get(JobState.READY, 0),
        running=states.get(JobState.LEASED, 0),
        retrying=states.get(JobState.DELAYED, 0),
    )


def summarise(queue: Queue, since: datetime) -> Summary:
    """Sum up a run that began at ``since`` and is over."""
    results = JobResult.objects.filter(queue=queue, created_at__gte=since)
    dead = Job.objects.filter(queue=queue, state=JobState.DEAD)
    times = results.aggregate(
        begin=Min("created_at"), end=Max("finished_at"), tries=Sum("deliveries"), jobs=Count("seq")
    )
    dead_times = dead.aggregate(tries=Sum("deliveries"), jobs=Count("seq"))
    reports = SourceReport.objects.all()
    totals = reports.aggregate(lines=Sum("lines"), functions=Sum("functions"))
    groups = dead.values("fingerprint").annotate(number=Count("seq"), kind=Min("error_type"), text=Min("error"))
    return Summary(
        completed=times["jobs"],
        seconds=(times["end"] - times["begin"]).total_seconds() if times["jobs"] else 0.0,
        lines=totals["lines"] or 0,
        functions=totals["functions"] or 0,
        wait=_percentiles(reports.order_by("waited_ms").values_list("waited_ms", flat=True)),
        run=_percentiles(reports.order_by("took_ms").values_list("took_ms", flat=True)),
        retries=(times["tries"] or 0) - times["jobs"] + (dead_times["tries"] or 0) - dead_times["jobs"],
        dead=[
            DeadGroup(group["number"], group["kind"] or "", group["text"] or "")
            for group in groups.order_by("-number", "text")
        ],
    )


def _percentiles(ascending: Iterable[float]) -> tuple[float, float]:
    """The 50th and the 99th percentile (nearest rank)."""
    values = list(ascending)
    if not values:
        return 0.0, 0.0
    return values[(len(values) - 1) // 2], values[(len(values) * 99 + 99) // 100 - 1]
