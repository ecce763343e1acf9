"""Workflows of jobs with labels, for tests."""

from uuid import UUID, uuid4

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob, Node, Release
from tests.engine.helpers import NODE, claim

NO = Failure("E", "no")


def node(label: str, *parents: int, queue: str = "work", **options: object) -> Node:
    return Node(queue, NewJob({"label": label}), parents, label=label, **options)  # type: ignore[arg-type]


def start(*nodes: Node, **options: object) -> UUID:
    uid = uuid4()
    engine.run(engine.start_workflow(nodes, uid, **options))  # type: ignore[arg-type]
    return uid


def names(jobs: list[engine.LeasedJob]) -> list[str]:
    return sorted(job.data["label"] for job in jobs)


def finish(jobs: list[engine.LeasedJob], result: object = None) -> None:
    engine.run(engine.finish([Ending(job.seq, job.token, result=result) for job in jobs], NODE))


def fail(job: engine.LeasedJob) -> None:
    engine.run(engine.release([Release(job.seq, job.token, failure=NO)], NODE))


def status(uid: UUID) -> tuple[str, int, int, int, int]:
    found = engine.run(engine.get_workflow(uid))
    return found.label, found.open, found.completed, found.failed, found.cancelled


def states(uid: UUID) -> dict[str, str]:
    found = engine.run(engine.get_workflow(uid))
    return {row.label: row.state for row in engine.run(engine.workflow_nodes(found.id))}


def run_all() -> list[list[str]]:
    """Run until nothing is left; the labels of each claim."""
    rounds = []
    while jobs := claim(100):
        rounds.append(names(jobs))
        finish(jobs)
    return rounds
