"""The demo of a task of several steps: its worker is killed in the middle, and another one goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import TypeVar
from uuid import uuid4

from django_leasequeue.models import JobStep, Worker
from django_leasequeue.tasks import emit

from .models import Total
from .processes import Child, running
from .tasks import publish_total

T = TypeVar("T")

_PATIENCE = 60.0


def steps(path: str) -> Iterator[str]:
    """Run the task on two workers, kill the one that has it, and say in lines what happens.

    Raises:
        TimeoutError: it does not go on.
    """
    command = ["runworker", "--queues", publish_total.queue_name, "--concurrency", "1"]
    with running("demo-steps-1", *command) as one, running("demo-steps-2", *command) as other:
        approval = f"approved {uuid4()}"
        result = publish_total.enqueue(path, approval)
        job = result.job
        assert job is not None
        done = JobStep.objects.filter(seq=job.pk)
        until("the first step", done.filter(name="count").exists, one, other)
        job.refresh_from_db()
        worker = until("the worker's row", Worker.objects.filter(node=job.worker).first, one, other)
        os.kill(worker.pid, signal.SIGKILL)
        yield f"step 'count' is done, and worker {worker.pid} was killed in the atomic step behind it: {_totals(path)}"
        until("the atomic step", done.filter(name="write").exists, one, other)
        yield f"the other worker went on: {_totals(path)}"
        until("the wait", done.filter(event=approval).exists, one, other)
        emit(approval, "the demo")
        yield "it waited for an event, without a thread; the event was emitted"

        def ended() -> bool:
            result.refresh()
            return result.is_finished

        until("the end", ended, one, other)
        yield f"it slept for a second, and is done: {result.return_value}"
        for step in done.order_by("done_at"):
            yield f"    {step.name.partition(' approved')[0]:<10} in delivery {step.delivery}"


def until(what: str, found: Callable[[], T | None], *workers: Child) -> T:
    """Wait until ``found`` returns something true."""
    ends = time.monotonic() + _PATIENCE
    while not (value := found()):
        if time.monotonic() > ends:
            said = "\n".join(worker.last_lines() for worker in workers)
            raise TimeoutError(f"{what} did not come in {_PATIENCE:.0f} s. The workers say:\n{said}")
        time.sleep(0.02)
    return value


def _totals(path: str) -> str:
    return f"rows that it has written: {Total.objects.filter(path=path).count()}"
