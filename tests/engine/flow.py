"""Jobs under limits, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from django_leasequeue import engine
from django_leasequeue.engine import LimitValues, NewJob
from tests.engine.helpers import enqueue

#: One job of a customer at a time.
ONE = LimitValues("customer", concurrency=1)


def limited(keys: Sequence[str], values: LimitValues = ONE, **options: object) -> list[int]:
    """Jobs under a limit, in the order of their keys."""
    jobs = [NewJob({"key": key}, flow=True, **{"run_at": engine.HELD, **options}) for key in keys]  # type: ignore[arg-type]
    seqs = [answer.seq for answer in enqueue(*jobs)]
    engine.run(engine.limit("work", seqs, keys, [values] * len(keys)))
    return seqs
