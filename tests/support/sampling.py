"""Sampling of queues here and now, as the reaper does it in its own time."""

from django_leasequeue import engine
from django_leasequeue.engine.queues import stats


def sample() -> stats.Sampled:
    """Write samples of all queues, page by page; return how many queues there are and how many samples were written."""
    estimates = engine.run(stats.estimate())
    queues = written = 0
    after: int | None = 0
    while after is not None:
        done = engine.run(stats.sample_page(estimates, after))
        queues, written, after = queues + done.queues, written + done.written, done.next
    return stats.Sampled(queues, written, None)
