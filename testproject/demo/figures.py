"""What came of a run of the demo: counted in the database, for the progress bar and the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import (
    Aggregate,
    Count,
    Func,
    IntegerField,
    Max,
    Min,
    Model,
    OuterRef,
    QuerySet,
    Subquery,
    Sum,
)

from django_leasequeue.models import Claim, DeadLetter, Delayed, JobResult, Queue, Ready, StoredJob

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
    """Count the jobs of a run that began at ``since``, wherever they stand at one instant."""
    held = Func("seqs", function="cardinality", output_field=IntegerField())
    numbers = Queue.objects.filter(pk=queue.pk).values_list(
        _number(Ready, Count("seq")), _number(Delayed, Count("seq")), _number(Claim, Sum(held)),
        _number(DeadLetter, Count("seq")),
    )  # fmt: skip
    waiting, retrying, running, dead = (number or 0 for number in numbers.get())
    completed = _results(queue, since).count()
    return Progress(completed=completed, dead=dead, waiting=waiting, running=running, retrying=retrying)


def _number(place: type[Model], aggregate: Aggregate) -> Subquery:
    rows = place._default_manager.filter(queue=OuterRef("pk")).order_by()
    return Subquery(rows.values("queue").annotate(number=aggregate).values("number"))


def summarise(queue: Queue, since: datetime) -> Summary:
    """Sum up a run that began at ``since`` and is over."""
    results = _results(queue, since)
    dead = DeadLetter.objects.filter(queue=queue)
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


def _results(queue: Queue, since: datetime) -> QuerySet[JobResult]:
    """The results of a run, each with the time when its job was enqueued."""
    enqueued = StoredJob.objects.filter(pk=OuterRef("pk")).values("created_at")
    return JobResult.objects.filter(queue=queue).annotate(created_at=Subquery(enqueued)).filter(created_at__gte=since)


def _percentiles(ascending: Iterable[float]) -> tuple[float, float]:
    """The 50th and the 99th percentile (nearest rank)."""
    values = list(ascending)
    if not values:
        return 0.0, 0.0
    return values[(len(values) - 1) // 2], values[(len(values) * 99 + 99) // 100 - 1]
