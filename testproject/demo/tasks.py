"""The demo's task."""

from __future__ import annotations

import time
from pathlib import Path

from django.utils import timezone

from django_leasequeue.tasks import LeaseQueueContext, task

from .models import SourceReport
from .source import examine


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
