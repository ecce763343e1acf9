"""Jobs under limits, for tests."""

from collections.abc import Sequence

from django.db import connection

from django_leasequeue import engine
from django_leasequeue.engine import Ending, LeasedJob, Limited, LimitValues, NewJob
from django_leasequeue.engine.verify import verify
from tests.engine.helpers import NODE, enqueue

#: One job of a customer at a time.
ONE = LimitValues("customer", concurrency=1)


def limited(keys: Sequence[str], values: LimitValues = ONE, **options: object) -> list[int]:
    """Jobs under a limit, in the order of their keys."""
    jobs = [NewJob({"key": key}, limit=Limited(key, values), **options) for key in keys]  # type: ignore[arg-type]
    return [answer.seq for answer in enqueue(*jobs)]


def differences() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    return sorted(difference.difference for difference in engine.run(verify()).differences)


def ack(*jobs: LeasedJob) -> None:
    engine.run(engine.finish([Ending(job.seq, job.token) for job in jobs], NODE))
