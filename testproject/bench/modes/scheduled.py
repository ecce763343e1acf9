"""A million jobs that are not due yet: they lie in the way of nobody."""

from __future__ import annotations

from ..bench import Bench
from .backlog import BATCH, add_ratio
from .claim import bare, ours

SUMMARY = "claim while 1,000,000 scheduled jobs are in the same queue"

_LABEL = "UPDATE .. SKIP LOCKED, DELETE"
_DAY_MS = 86_400_000


def run(bench: Bench) -> None:
    """Add the figures."""
    bench.start_reaper()
    queue = bench.queue()
    jobs, scheduled = bench.options.small_backlog // 2, bench.options.large_backlog
    name = "claim and ack, batches of 20, {:,} scheduled"
    without = bench.compare(name.format(0), ours(bench, queue, BATCH), bare(bench, BATCH), jobs, label=_LABEL)
    bench.progress.step(f"{bench.mode}: enqueueing {scheduled:,} jobs for tomorrow")
    bench.fill(queue, scheduled, delay_ms=_DAY_MS)
    bench.tidy()
    beside = bench.compare(name.format(scheduled), ours(bench, queue, BATCH), bare(bench, BATCH), jobs, label=_LABEL)
    add_ratio(bench, f"{scheduled:,} scheduled", beside, without, "none scheduled")
