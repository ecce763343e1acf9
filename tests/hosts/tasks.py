"""Tasks of the hosts."""

import time
from datetime import timedelta

from django.contrib.auth.models import Group
from django.db import connection

from django_leasequeue.tasks import Backoff, Limit, current, task


@task
def add(first: int, second: int) -> int:
    with connection.cursor() as cursor:  # as tasks do: on the connection that the host has changed
        cursor.execute("SELECT %s::int + %s::int", [first, second])
        found: int = cursor.fetchone()[0]
    return found


@task
async def aadd(first: int, second: int) -> int:
    return first + second


@task(max_attempts=1)
def needs(name: str) -> str:
    """Fail until there is a group of this name."""
    if not Group.objects.filter(name=name).exists():
        raise ValueError("as asked")
    return name


@task(takes_context=True, max_attempts=3, backoff=Backoff("fixed", base=0.1))
def succeeds_later(context) -> int:  # type: ignore[no-untyped-def]
    if context.attempt < 2:
        raise ValueError("as asked")
    return int(context.attempt)


@task(key="invoice-{order}")
def make_invoice(order: int) -> int:
    return order


@task(limit=Limit("one-by-one", concurrency=1))
def alone() -> list[float]:
    """Return when it began and ended."""
    began = time.time()
    time.sleep(0.02)
    return [began, time.time()]


@task(atomic=True)
def add_group(name: str) -> int:
    Group.objects.create(name=name)
    add.enqueue(1, 1)
    return Group.objects.filter(name=name).count()


@task
def story(name: str) -> list[object]:
    """Sleep, and wait for an event; its first step runs once."""
    job = current()
    assert job is not None
    step = job.step("first", lambda: Group.objects.create(name=f"{name} {Group.objects.count()}").name)
    job.sleep("nap", milliseconds=100)
    told = job.wait_for(f"told:{name}", timeout=timedelta(minutes=5))
    return [step, told, Group.objects.filter(name__startswith=name).count()]


@task
def tick() -> None:
    """What recurs."""


@task
def in_schema() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        return str(cursor.fetchone()[0])
