"""Sampling of queues here and now, as the reaper does it in its own time."""

from django_leasequeue import engine
from django_leasequeue.engine.queues import stats
from django_leasequeue.models import QueueStat


def sample() -> int:
    """Write samples of all queues, page by page; return how many were written."""
    estimates = engine.run(stats.estimate())
    before, after = QueueStat.objects.count(), 0
    while after is not None:
        after = engine.run(stats.sample_page(estimates, after))
    return QueueStat.objects.count() - before
