"""A worker that was killed stops being shown as running when the lease of its row is over."""

import json
import os
import signal

import pytest

from django_leasequeue.admin import reading
from django_leasequeue.engine import clock
from django_leasequeue.engine.limits import WORKER_LEASE
from django_leasequeue.models import Worker
from tests.support.commands import said
from tests.support.waiting import eventually
from tests.worker.processes import Start
from tests.worker.support import enqueue


def shown() -> list[tuple[str, str, int]]:
    """What the status command says of workers: node, state, jobs running."""
    workers = json.loads(said("leasequeue_status", "--json"))["workers"]
    return [(line["node"], line["state"], line["running"]) for line in workers]


@pytest.mark.slow
@pytest.mark.sample
def test_killed(work: str, start: Start) -> None:
    enqueue({"do": "wait"})
    worker = start("--node", "here")
    row = eventually(lambda: Worker.objects.filter(running__0__queue="work").first(), "it shows what it runs")
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    seen = Worker.objects.get().seen_at
    with clock.hold(clock.Clock(seen)) as held:
        assert (row.state, shown()) == ("running", [("here", "running", 1)])
        held.advance(seconds=WORKER_LEASE - 0.1)
        (alive,) = reading.read_workers()
        assert (alive.state, alive.gone, len(alive.running)) == ("running", False, 1)
        held.advance(seconds=0.2)
        (gone,) = reading.read_workers()
        assert gone.gone is True
        assert shown() == [("here", "gone", 0)]
        text = said("leasequeue_status")
        assert "Worker here was not seen for 30.1 s." in text
        assert "No worker listens" not in text, "no job is ready"
