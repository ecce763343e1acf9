"""A worker of one thread, without the worker: claims, runs and settles through the seam, under the test's clock."""

import asyncio
from typing import Any

from django_leasequeue import engine
from django_leasequeue.engine import Ending, LeasedJob, Release
from django_leasequeue.tasks import WorkflowResult
from django_leasequeue.tasks.api import task_backends
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.testing import Harness
from django_leasequeue.worker.control import GiveUp, JobControl

NODE = "worker-1"


def claim(queue: str = "default", node: str = NODE, size: int = 1, project: str = "") -> list[LeasedJob]:
    return engine.run(engine.claim(queue, node, size, project=project))


def leased(task: Any, *args: Any, **kwargs: Any) -> LeasedJob:
    task.enqueue(*args, **kwargs)
    (job,) = claim(task.queue_name)
    return job


def run_one(
    queue: str = "default", *, handler: TaskHandler | None = None, node: str = NODE, project: str = ""
) -> str | None:
    """Run the next job of a queue to its settled end; return that end, ``None`` if there was no job."""
    handler = handler or TaskHandler(project)
    jobs = claim(queue, node, project=project)
    if not jobs:
        return None
    (job,) = jobs
    control = JobControl(job, node)
    try:
        text = asyncio.run(handler.arun(job, control)) if handler.is_async(job) else handler.run(job, control)
    except BaseException as error:  # noqa: BLE001  (as the worker does)
        return settle_failed(handler, job, error, node, project)
    settled = engine.run(engine.finish([Ending(job.seq, job.token, result_json=text)], node, project=project))
    assert settled.ok == [job.seq]
    handler.settled(job, "completed", result_json=text)
    return "completed"


def settle_failed(handler: TaskHandler, job: LeasedJob, error: BaseException, node: str, project: str) -> str:
    failure, verdict = handler.failed(job, error)
    if isinstance(verdict, GiveUp):
        engine.run(engine.finish([Ending(job.seq, job.token, failure=failure)], node, project=project))
        handler.settled(job, "failed", failure=failure)
        return "failed"
    release = Release(job.seq, job.token, verdict.delay_ms, failure)
    settled = engine.run(engine.release([release], node, project=project))
    where = settled.released[job.seq]
    ending: Any = "dead" if where.state == "dead" else "failing"
    handler.settled(job, ending, failure=failure, available_at=where.available_at)
    return str(ending)


def run_all(queue: str = "default") -> list[str]:
    """Run the jobs of a queue until none is ready; return their ends."""
    return list(iter(lambda: run_one(queue), None))


def stored(result: Any) -> Any:
    """Return the result as the database has it now."""
    return task_backends[result.backend].get_result(result.id)


def drained(leasequeue: Harness, *queues: str, **options: Any) -> list[str]:
    """Run what is ready by the harness; return how each run ended."""
    return [ran.state for ran in leasequeue.drain(*queues, **options)]


def states(result: WorkflowResult[Any]) -> list[str]:
    return [member.state for member in result.members()]
