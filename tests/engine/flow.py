"""Jobs under limits, and workflows of jobs with labels, for tests."""

from collections.abc import Sequence
from uuid import UUID, uuid4

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, LeasedJob, Limited, LimitValues, NewJob, Node
from django_leasequeue.engine.verify import verify
from tests.engine.helpers import NODE, claim, enqueue, give_back, run

#: One job of a customer at a time.
ONE = LimitValues("customer", concurrency=1)
NO = Failure("E", "no")


def limited(keys: Sequence[str], values: LimitValues = ONE, queue: str = "work", **options: object) -> list[int]:
    jobs = [NewJob({"key": key}, limit=Limited(key, values), **options) for key in keys]  # type: ignore[arg-type]
    return [answer.seq for answer in enqueue(*jobs, queue=queue)]


def differences() -> list[str]:
    run("SET CONSTRAINTS ALL IMMEDIATE")
    return sorted(difference.difference for difference in engine.run(verify()).differences)


def ack(*jobs: LeasedJob, result: object = None) -> None:
    engine.run(engine.finish([Ending(job.seq, job.token, result=result) for job in jobs], NODE))


def fail(job: LeasedJob) -> None:
    give_back(job, None, NO)


def node(label: str, *parents: int, queue: str = "work", **options: object) -> Node:
    return Node(queue, NewJob({"label": label}), parents, label=label, **options)  # type: ignore[arg-type]


def start(*nodes: Node, **options: object) -> UUID:
    uid = uuid4()
    engine.run(engine.start_workflow(nodes, uid, **options))  # type: ignore[arg-type]
    return uid


def names(jobs: list[LeasedJob]) -> list[str]:
    return sorted(job.data["label"] for job in jobs)


def status(uid: UUID) -> tuple[str, int, int, int, int]:
    found = engine.run(engine.get_workflow(uid))
    return found.label, found.open, found.completed, found.failed, found.cancelled


def states(uid: UUID) -> dict[str, str]:
    found = engine.run(engine.get_workflow(uid))
    return {row.label: row.state for row in engine.run(engine.workflow_nodes(found.id))}


def run_all() -> list[list[str]]:
    rounds = []
    while jobs := claim(100):
        rounds.append(names(jobs))
        ack(*jobs)
    return rounds
