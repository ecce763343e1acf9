"""What ``/v1/queues`` does to a large queue: listing and claiming cost as much as in a small one."""

from __future__ import annotations

from collections.abc import Callable

from django_leasequeue import engine
from django_leasequeue.engine.topics import messages

from ..bench import NODE, Bench, Measurement
from ..figures import Sample, Target
from ..options import PROJECT

SUMMARY = "list and claim messages (/v1) at 1,000,000 as fast as at 1,000"

SMALL = 1_000
#: The page of that service.
PAGE = 20

_TTL_MS = 86_400_000


def run(bench: Bench) -> None:
    """Add the figures: the small queue is the ceiling of the large one, in the same rounds."""
    bench.start_reaper()
    large = bench.options.large_backlog
    queues = []
    for count in (SMALL, large):
        queue = bench.queue(preset="zaqar")
        bench.progress.step(f"{bench.mode}: posting {count:,} messages")
        bench.fill(queue, count, ttl_ms=_TTL_MS)
        queues.append(queue)
    small, big = queues
    bench.tidy()
    label = f"the same at {SMALL:,}"
    target = Target("ratio", at_least=0.8)
    calls = bench.options.singles
    for name, measurement in (
        ("list a page at the start", lambda queue: listing(bench, queue, 0.0)),
        ("list a page in the middle", lambda queue: listing(bench, queue, 0.5)),
        ("claim 20 messages and release them", lambda queue: claiming(bench, queue)),
        ("oldest and newest", lambda queue: ends(bench, queue)),
    ):
        bench.compare(
            f"{name}, {large:,} messages",
            measurement(big),
            measurement(small),
            calls,
            label=label,
            target=target,
        )


def listing(bench: Bench, queue: str, share: float) -> Measurement:
    """Return the measurement of listing one page behind that share of the messages."""
    queue_id = _id(bench, queue)
    oldest, newest = bench.executor.run(messages.get_ends(queue_id)) or ((0,), (0,))
    after = int(oldest[0] + (newest[0] - oldest[0]) * share) - 1

    def call() -> None:
        page = bench.executor.run(messages.list_messages(queue_id, after=after, size=PAGE))
        _check(len(page))

    return _times(bench, call)


def claiming(bench: Bench, queue: str) -> Measurement:
    """Return the measurement of claiming a page and giving it back."""
    queue_id = _id(bench, queue)

    def call() -> None:
        jobs = bench.executor.run(engine.claim(queue, NODE, PAGE, project=PROJECT))
        _check(len(jobs))
        bench.executor.run(messages.release_claim(queue_id, jobs[0].token, project=PROJECT))

    return _times(bench, call)


def ends(bench: Bench, queue: str) -> Measurement:
    """Return the measurement of asking for the oldest and the newest message."""
    queue_id = _id(bench, queue)

    def call() -> None:
        _check(PAGE if bench.executor.run(messages.get_ends(queue_id)) else 0)

    return _times(bench, call)


def _id(bench: Bench, queue: str) -> int:
    info = bench.executor.run(engine.get(queue, project=PROJECT))
    assert info is not None
    return info.id


def _check(found: int) -> None:
    if found != PAGE:
        raise RuntimeError(f"{found} messages instead of {PAGE}.")


def _times(bench: Bench, call: Callable[[], None]) -> Measurement:
    def measure(calls: int) -> Sample:
        with bench.meter.measure(calls) as sample:
            for _ in range(calls):
                call()
        return sample

    return measure
