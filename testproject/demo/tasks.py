"""The demo's tasks: one of a moment, and one of several steps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from django.db.models import Count, Sum
from django.utils import timezone

from django_leasequeue.tasks import LeaseQueueContext, current, task

from .models import SourceReport, Total
from .source import examine, find_sources


@task(queue_name="demo", takes_context=True, timeout=60)
def report_source(context: LeaseQueueContext, path: str) -> dict[str, int]:
    """Examine one Python file and store the report. A file that does not parse fails, and in the end is dead."""
    started_at = timezone.now()
    clock = time.perf_counter()
    enqueued_at = context.task_result.enqueued_at or started_at
    found = examine(Path(path))
    SourceReport.objects.update_or_create(
        path=path,
        defaults={
            **found._asdict(),
            "attempt": context.attempt,
            "waited_ms": max((started_at - enqueued_at).total_seconds() * 1000, 0),
            "took_ms": (time.perf_counter() - clock) * 1000,
        },
    )
    return {"lines": found.lines, "functions": found.functions, "classes": found.classes}


@task(queue_name="demo", timeout=600)
def survey(directory: str) -> dict[str, int]:
    """Count the lines below a directory, and say how far it is: the page of the user who asked for it shows that."""
    job = current()
    assert job is not None
    sources, lines, broken = find_sources(Path(directory)), 0, 0
    for done, path in enumerate(sources):
        job.set_progress({"done": done, "of": len(sources), "text": f"{done:,} of {len(sources):,} files"})
        try:
            lines += examine(path).lines
        except (SyntaxError, ValueError):
            broken += 1
    return {"files": len(sources), "lines": lines, "broken": broken}


@task(queue_name="demo-steps", max_attempts=10)
def publish_total(path: str, approval: str) -> str:
    """Count, write, wait for an approval, sleep: each once, though its worker is killed."""
    job = current()
    assert job is not None
    total = job.step("count", count)
    job.step("write", write, path, total, killed=job.job.deliveries == 1, atomic=True)
    approved = job.wait_for(approval, timeout=60)
    job.sleep("cool off", seconds=1)
    return f"{total['lines']:,} lines in {total['files']:,} files, approved by {approved}"


def count() -> dict[str, Any]:
    """Count what is reported."""
    return SourceReport.objects.aggregate(files=Count("pk"), lines=Sum("lines", default=0))


def write(path: str, total: dict[str, Any], killed: bool) -> None:
    """Write the total; the first time, wait to be killed before the commit."""
    Total.objects.create(path=path, **total)
    if killed:
        time.sleep(60)
