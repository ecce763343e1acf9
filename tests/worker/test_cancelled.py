"""Workflows and running jobs that are cancelled: what a worker holds is not started, what runs is told."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from django_leasequeue import Queue, engine
from django_leasequeue.engine import NewJob, Node
from django_leasequeue.models import Job, JobEvent, JobResult, LiveJob
from tests.engine.helpers import make
from tests.support.waiting import eventually
from tests.worker.handlers import ScriptHandler, lines, note, times
from tests.worker.support import working

pytestmark = pytest.mark.django_db(transaction=True)


class Goes(ScriptHandler):
    """Jobs that are told to stop, and heed it, or return all the same; or are quick."""

    def run(self, job: Any, control: Any) -> str | None:
        note(job, "start")
        if job.data["do"] != "quick":
            assert control.event.wait(60)
            note(job, control.reason)
            if job.data["do"] == "heed":
                control.raise_if_aborted()
        return "1"

    async def arun(self, job: Any, control: Any) -> str | None:
        note(job, "start")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            note(job, control.reason)
            raise
        return None


@pytest.mark.parametrize("listens", [True, False])
def test_what_is_held_is_not_started_and_what_runs_is_told(listens: bool, settings: Any, notes: Path) -> None:
    if not listens:
        settings.LEASEQUEUE = {"LISTEN_DSN": ""}
    make(lease_ms=600_000, result_ttl_ms=60_000)
    nodes = [Node("work", NewJob({"do": do, "file": str(notes)})) for do in ("quick", "heed", *["return"] * 38)]
    uid = uuid4()
    # The end of the quick one is sent later than the cancel. No claim is under way then: its jobs would be started,
    # and told a little later.
    with working(Goes(), queues=["work"], concurrency=3, prefetch=20, ack_ms=1_000, max_jobs=6) as worker:
        eventually(lambda: worker.state.notifications_arrive() is listens, "it listens")
        engine.run(engine.start_workflow(nodes, uid))
        eventually(lambda: times(notes, "start") == 4 and len(worker.state.held) >= 5, "some run, some wait")
        assert engine.run(engine.cancel_workflow(uid)) < 37
        eventually(lambda: not worker.state.held, "they have ended, the others are given back")
    assert times(notes, "start") == 4
    for _ in range(3):
        assert engine.run(engine.claim("work", "other", 10)) == []
    assert not LiveJob.objects.exists()
    found = engine.run(engine.get_workflow(uid))
    assert (found.label, found.open, found.completed, found.cancelled) == ("cancelled", 0, 3, 37)


@pytest.mark.parametrize(("listens", "result_ttl_ms"), [(True, 60_000), (False, 60_000), (True, 0)])
def test_jobs_are_cancelled_while_they_run(listens: bool, result_ttl_ms: int, settings: Any, notes: Path) -> None:
    if not listens:
        settings.LEASEQUEUE = {"LISTEN_DSN": ""}
    queue = Queue("work", lease_ms=600_000 if listens else 9_000, result_ttl_ms=result_ttl_ms)
    todo: list[dict[str, Any]] = [{"do": "heed"}, {"do": "return"}, {"do": "async", "async": True}]
    queue.enqueue_many([{**data, "file": str(notes)} for data in [*todo, *[{"do": "held"}] * 5, {"do": "heed"}]])
    seqs = sorted(Job.objects.values_list("pk", flat=True))
    with working(Goes(), queues=["work"], concurrency=2, async_concurrency=1, prefetch=20) as worker:
        eventually(lambda: worker.state.notifications_arrive() is listens, "it listens")
        eventually(lambda: len(lines(notes)) == 3, "three run")
        # Those that wait in the worker first: a thread that comes free would start the next one of them.
        assert Job.objects.filter(pk__in=seqs[1:8]).cancel(running=True) == 7
        assert queue.cancel(seqs[0]) == "processing"
        assert queue.cancel(seqs[0], running=True) == "cancelled"
        eventually(lambda: set(worker.state.held) == {seqs[8]}, "what was cancelled is not held")
        eventually(lambda: len(lines(notes)) == 7, "the last one runs")
        assert Job.objects.get().pk == seqs[8]
    said = [word for _, word, _ in lines(notes)]
    assert (said.count("start"), said.count("cancelled"), said.count("stopping")) == (4, 3, 1)
    assert not JobResult.objects.exists()
    assert set(JobEvent.objects.filter(seq__in=seqs[:8]).values_list("kind", flat=True)) <= {1, 2, 3, 10}
