"""A workflow that is cancelled: what a worker holds of it is not started, what runs is told and counts."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob, Node
from django_leasequeue.models import LiveJob
from tests.engine.helpers import make
from tests.support.waiting import eventually
from tests.worker.handlers import ScriptHandler, lines, note
from tests.worker.support import working

pytestmark = pytest.mark.django_db(transaction=True)


class Heeds(ScriptHandler):
    """Jobs that end well, or give up, when they are told to stop."""

    def run(self, job: Any, control: Any) -> str | None:
        note(job, "start")
        assert control.event.wait(60)
        if job.data["do"] == "up":
            control.raise_if_aborted()
        return f'"{control.reason}"'


@pytest.mark.parametrize("listens", [True, False])
def test_what_is_held_is_not_started_and_what_runs_is_told(listens: bool, settings: Any, tmp_path: Path) -> None:
    if not listens:
        settings.LEASEQUEUE = {"LISTEN_DSN": ""}
    make(lease_ms=600_000, result_ttl_ms=60_000)
    file = str(tmp_path / "notes")
    nodes = [Node("work", NewJob({"do": "wait" if n else "up", "file": file})) for n in range(40)]
    uid = uuid4()
    with working(Heeds(), queues=["work"], concurrency=3, prefetch=20) as worker:
        eventually(lambda: worker.state.hears() is listens, "it listens")
        engine.run(engine.start_workflow(nodes, uid))
        eventually(
            lambda: len(lines(tmp_path / "notes")) == 3 and len(worker.state.held) > 3, "three run, more are held", 20
        )
        assert engine.run(engine.cancel_workflow(uid)) < 37
        eventually(lambda: not worker.state.held, "they have ended, the others are given back")
    assert len(lines(tmp_path / "notes")) == 3
    for _ in range(3):
        assert engine.run(engine.claim("work", "other", 10)) == []
    assert not LiveJob.objects.exists()
    found = engine.run(engine.get_workflow(uid))
    assert (found.label, found.open, found.completed, found.cancelled) == ("cancelled", 0, 2, 38)
