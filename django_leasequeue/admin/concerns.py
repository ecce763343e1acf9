"""Fair warnings: what somebody on call should know of a queue or of the database, and what to do about it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ..engine.queues.stats import Counts
from ..reaper.status import LONG_TRANSACTION
from .figures import span
from .reading import Health, ServerState, WorkerFacts


class Concern(NamedTuple):
    """A warning: ``level`` is ``warning`` or ``error``; ``queue_id`` and ``seq`` say what to look at."""

    level: str
    text: str
    queue_id: int | None = None
    queue: str = ""
    seq: int | None = None


def of_server(server: ServerState) -> list[Concern]:
    """Return what is wrong with the database or the reaper."""
    found = []
    if not server.leader:
        found.append(
            Concern(
                "error",
                "No reaper leads: nothing sweeps, samples or carries out operations. Start a worker or 'manage.py"
                " runreaper'.",
            )
        )
    if server.age is not None and server.age > LONG_TRANSACTION:
        found.append(
            Concern(
                "warning",
                f"A transaction of {server.application or 'an unnamed client'} (pid {server.pid}) is open for"
                f" {span(server.age)}: PostgreSQL cannot clean up behind it, and floors wait for it. End it, or"
                f" SELECT pg_terminate_backend({server.pid}).",
            )
        )
    return found


def of_queue(counts: Counts, health: Health | None, now: datetime) -> list[Concern]:
    """Return what is wrong with a queue."""
    name = counts.queue
    found: list[Concern] = []

    def say(level: str, text: str, seq: int | None = None) -> None:
        found.append(Concern(level, text, counts.queue_id, name, seq))

    if counts.paused_at is not None:
        say("warning", f"{name} is paused since {span(now - counts.paused_at)}: nothing is claimed from it.")
    if health is None:
        return found
    if counts.type == "queue" and counts.ready and not (health.workers or health.waiting or counts.in_flight):
        say("error", f"No worker listens to {name}, and jobs are ready. Start 'manage.py runworker --queues {name}'.")
    if health.overdue is not None:
        say(
            "error",
            f"A lease of {name} is over since {span(now - health.overdue)} and nobody swept it: is a reaper running?",
            health.overdue_seq,
        )
    if health.old is not None:
        say(
            "warning",
            f"A lease of {name} is {span(now - health.old)} old, held by {health.old_node}: is the job stuck?",
            health.old_seq,
        )
    if health.floor_since is not None:
        say(
            "warning",
            f"A floor of {name} could not move since {span(now - health.floor_since)}: a long transaction holds it, and"
            " claims walk over dead entries.",
        )
    return found


def of_workers(workers: list[WorkerFacts]) -> list[Concern]:
    """Return the workers that are gone without a goodbye."""
    return [
        Concern("warning", f"Worker {worker.node} was not seen for {span(worker.silent)}.")
        for worker in workers
        if worker.gone
    ][:20]
