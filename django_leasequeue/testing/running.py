"""Runs jobs in a test's own thread and connection, as a worker would."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from asgiref.sync import async_to_sync
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test.testcases import DatabaseOperationForbidden  # type: ignore[attr-defined]  # the stubs lack it
from psycopg.pq import TransactionStatus

from .. import engine
from ..engine import LeasedJob, codec
from ..engine.jobs.results import Progress, progress
from ..engine.jobs.steps import emit_ended, wake_waiting
from ..engine.queues import routing
from ..models import Queue as QueueRow
from ..queue.base import Handle, find_serializer
from ..queue.consumer import FunctionHandler
from ..queue.queue import Queue
from ..tasks.handler import TaskHandler
from ..worker.control import EndingName, GiveUp, Handler, JobControl
from ..worker.durable import Crashed, Suspended

logger = logging.getLogger("django_leasequeue.testing")

#: The name under which jobs are run.
NODE = "test"


class Ran(NamedTuple):
    """The outcome of a job that ``drain`` ran.

    ``state`` is ``completed``, ``failed`` (for good), ``failing`` (to be tried again), ``dead`` (its deliveries are
    used up), ``suspended`` (it sleeps, or waits for an event), ``crashed`` (as ``crash_after`` wants), or ``lost``
    (its lease was over before it ended: the clock was moved meanwhile, or it was given away).
    """

    queue: str
    seq: int
    key: str | None
    name: str | None
    payload: Any
    state: str
    result: Any = None
    error: BaseException | None = None


class PlacedJob(NamedTuple):
    """A claimed job, and where it was."""

    alias: str
    project: str
    job: LeasedJob


class JobRunner:
    """Claims jobs one by one and runs them: in one database, or in every one that may hold queues and is allowed."""

    def __init__(self, using: str | None) -> None:
        self._using = using
        self._functions: dict[tuple[str, str], Callable[..., Any]] = {}
        self._handlers: dict[tuple[str, str], FunctionHandler] = {}
        self._tasks: dict[str, TaskHandler] = {}
        #: Each delivery that was run, and its payload.
        self.ran: list[tuple[PlacedJob, Any]] = []
        #: The step behind which the next run that does it breaks off.
        self.crash_after: str | None = None

    def handle(self, queue: Queue | str, function: Callable[..., Any]) -> None:
        if isinstance(queue, Handle):
            self._handlers[queue.project, queue.name] = _function_handler(queue, function)
        else:
            self._functions["", queue] = function
            self._handlers.pop(("", queue), None)

    def aliases(self) -> list[str]:
        """Return the databases to look in; raise what Django or pytest-django does where the test may use none."""
        if self._using:
            return [self._using]
        allowed = []
        forbidden: DatabaseOperationForbidden | None = None
        for alias in routing.aliases():
            try:
                with connections[alias].cursor():
                    allowed.append(alias)
            except DatabaseOperationForbidden as error:
                # Not in the ``databases`` of this test case: nothing can have been enqueued there.
                forbidden = error
        if forbidden is not None and not allowed:
            raise forbidden
        return allowed

    def next(self, places: Sequence[tuple[str, str]]) -> PlacedJob | None:
        """Claim the next job of these queues (of any if there are none named), ``None`` if none is ready."""
        for alias in self.aliases():
            queues = list(QueueRow.objects.using(alias).filter(type="queue").order_by("project", "name"))
            ids = [queue.pk for queue in queues]
            for again in range(2):
                # What has ended in one queue may set a job of another free, one that was looked at before too.
                after: tuple[str, str] | None = ("", "") if again else None
                while after is not None:  # as the reaper does it: tasks that wait for others that have ended
                    after = engine.run(emit_ended(after, 1_000), alias)
                while engine.run(engine.advance(ids), alias) > 0:
                    pass
                for queue in queues:
                    if places and (queue.project, queue.name) not in places:
                        continue
                    jobs = engine.run(engine.claim(queue.name, NODE, 1, project=queue.project, strict=False), alias)
                    if jobs:
                        return PlacedJob(alias, queue.project, jobs[0])
        return None

    def run(self, found: PlacedJob, *, raise_errors: bool) -> Ran:
        """Run a job and settle it; then raise its error, with ``raise_errors``."""
        alias, project, job = found
        handler = self._handler(found)
        control = JobControl(job, NODE, alias)
        control.crash_after = self.crash_after
        payload = self.payload(alias, project, job.queue, job.data, job.body)
        self.ran.append((found, payload))
        ran = Ran(job.queue, job.seq, job.key, job.name, payload, "lost")
        try:
            with _mended():
                text = (async_to_sync(handler.arun) if handler.is_async(job) else handler.run)(job, control)
            ending = engine.Ending(
                job.seq, job.token, result_json=text, body=control.result_body, result_ttl_ms=control.result_ttl_ms
            )
            _keep_progress(found, control)
            if not control.settled:
                settled = engine.run(engine.finish([ending], NODE, project=project), alias)
                if settled.outcomes[job.seq] is not engine.Outcome.OK:
                    return ran
        except Crashed:
            self.crash_after = None
            back = engine.Release(job.seq, job.token, 0)
            engine.run(engine.release([back], NODE, project=project), alias)
            return ran._replace(state="crashed")
        except Suspended:
            return ran._replace(state=_suspend(found, control))
        except Exception as error:
            _keep_progress(found, control)
            state = _fail(found, handler, control, error)
            if raise_errors:
                raise
            logger.exception("A job failed: %s %s", job.queue, job.name or job.key or job.seq)
            return ran._replace(state=state, error=error)
        handler.settled(job, "completed", result_json=text)
        value = None if text is None else codec.loads(text)
        return ran._replace(
            state="completed", result=self.payload(alias, project, job.queue, value, control.result_body)
        )

    def payload(self, alias: str, project: str, queue: str, data: Any, body: bytes | None) -> Any:
        """Return a payload or a result as its queue's serializer reads it."""
        if body is None:
            return data
        handler = self._handlers.get((project, queue))
        if handler is not None:
            return handler.serializer.read(data, body)
        return engine.run(find_serializer(Queue(queue, project=project, using=alias)), alias).read(data, body)

    def _handler(self, found: PlacedJob) -> Handler:
        alias, project, job = found
        place = (project, job.queue)
        if place not in self._handlers and place in self._functions:
            queue = Queue(job.queue, project=project, using=alias)
            self._handlers[place] = _function_handler(queue, self._functions[place])
        if place in self._handlers:
            return self._handlers[place]
        if job.name is not None:
            return self._tasks.setdefault(project, TaskHandler(project, inside=True))
        back = engine.Release(job.seq, job.token, 0)
        engine.run(engine.release([back], NODE, project=project, unstarted=True), alias)
        raise AssertionError(
            f"nothing is known that runs jobs of the queue {job.queue!r}: call"
            f" leasequeue.handle({job.queue!r}, function), or drain only other queues."
        )


def _function_handler(queue: Queue, function: Callable[..., Any]) -> FunctionHandler:
    return FunctionHandler(queue, function, serializer=engine.run(find_serializer(queue), queue.using))


def _keep_progress(found: PlacedJob, control: JobControl) -> None:
    """Store what the job reported last, as a worker's next renewal would."""
    said = control.take_progress()
    if said is not None:
        job = found.job
        engine.run(progress([Progress(job.seq, job.token, said[0])], NODE, project=found.project), found.alias)


def _suspend(found: PlacedJob, control: JobControl) -> str:
    alias, project, job = found
    assert control.suspension is not None
    back = engine.Release(job.seq, job.token, control.suspension.delay_ms)
    keeping = [job.seq] if control.suspension.keeps_slot else []
    settled = engine.run(engine.release([back], NODE, project=project, suspended=True, keeping=keeping), alias)
    if control.suspension.waits:
        engine.run(wake_waiting([job.seq]), alias)
    return "suspended" if settled.outcomes[job.seq] is engine.Outcome.OK else "lost"


def _fail(found: PlacedJob, handler: Handler, control: JobControl, error: BaseException) -> str:
    alias, project, job = found
    failure, decision = handler.failed(job, error)
    state: EndingName = "failed"
    place: engine.Released | None = None
    if isinstance(decision, GiveUp):
        ending = engine.Ending(job.seq, job.token, failure=failure, result_ttl_ms=control.result_ttl_ms)
        settled = engine.run(engine.finish([ending], NODE, project=project), alias)
    else:
        release = engine.Release(job.seq, job.token, decision.delay_ms, failure, dead_ttl_ms=control.result_ttl_ms)
        settled = engine.run(engine.release([release], NODE, project=project), alias)
        # A job that moved to a dead-letter topic is not in ``released``.
        place = settled.released.get(job.seq)
        state = "dead" if place is None or place.state == "dead" else "failing"
    if settled.outcomes[job.seq] is not engine.Outcome.OK:
        return "lost"
    handler.settled(job, state, failure=failure, available_at=place.available_at if place else None)
    return state


@contextmanager
def _mended() -> Iterator[None]:
    """Let a job's database error break only the job, as in a worker, not the transaction that the test runs in."""
    with ExitStack() as stack:
        for alias in connections:
            connection = connections[alias]
            if connection.connection is not None and connection.in_atomic_block and connection.vendor == "postgresql":
                stack.enter_context(_savepoint(connection))
        yield


@contextmanager
def _savepoint(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Undo what a job wrote only where that has to be: a worker is in autocommit mode."""
    mark = connection.savepoint()
    assert mark is not None, "there is one in an atomic block"
    try:
        yield
    except BaseException:
        if _broken(connection):
            connection.savepoint_rollback(mark)
            connection.set_rollback(False)
        raise
    else:
        # A job that swallowed a database error outside of an atomic block of its own has broken the transaction: the
        # next statement says so.
        if not _broken(connection):
            connection.savepoint_commit(mark)


def _broken(connection: BaseDatabaseWrapper) -> bool:
    return bool(connection.connection.info.transaction_status == TransactionStatus.INERROR)
