"""Runs jobs in a test's own thread and connection, as in a worker."""

from __future__ import annotations

import logging
from asyncio import CancelledError
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
from ..exceptions import TransactionLeftOpen
from ..models import Queue as QueueRow
from ..queue.base import Handle, find_serializer
from ..queue.function_handler import FunctionHandler
from ..queue.queue import Queue
from ..tasks.handler import TaskHandler
from ..worker.control import EndingName, GiveUp, Handler, JobControl
from ..worker.durable import Crashed, Suspended
from ..worker.edge import drop, error_of, open_on

logger = logging.getLogger("django_leasequeue.testing")

#: The name that holds jobs.
NODE = "test"

#: Errors that fail an attempt, as in a worker. Others end the drain: Ctrl-C, and those by which pytest fails or skips.
_FAILURES = (Exception, SystemExit, CancelledError, GeneratorExit)


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
    """A claimed job, with its database and project."""

    alias: str
    project: str
    job: LeasedJob


class JobRunner:
    """Claims and runs jobs one by one, in one database or in all that may hold queues and that the test allows."""

    def __init__(self, using: str | None) -> None:
        self._using = using
        self._functions: dict[tuple[str, str], Callable[..., Any]] = {}
        self._handlers: dict[tuple[str, str], FunctionHandler] = {}
        self._tasks: dict[str, TaskHandler] = {}
        #: Each delivery that was run, and its payload.
        self.ran: list[tuple[PlacedJob, Any]] = []
        #: The step after which its next run crashes.
        self.crash_after: str | None = None

    def handle(self, queue: Queue | str, function: Callable[..., Any]) -> None:
        if isinstance(queue, Handle):
            self._handlers[queue.project, queue.name] = _function_handler(queue, function)
        else:
            self._functions["", queue] = function
            self._handlers.pop(("", queue), None)

    def aliases(self) -> list[str]:
        """Return the databases to search; raise Django's or pytest-django's error if the test may use none."""
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
                # The end of a job in one queue may make a job of another one ready, also of one already searched.
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
        """Run a job and settle it; with ``raise_errors`` then raise its error."""
        alias, project, job = found
        handler = self._handler(found)
        control = JobControl(job, NODE, alias)
        control.crash_after = self.crash_after
        payload = self.payload(alias, project, job.queue, job.data, job.body)
        self.ran.append((found, payload))
        ran = Ran(job.queue, job.seq, job.key, job.name, payload, "lost")
        try:
            with _mended(), _edge(control):
                if handler.is_async(job):
                    text, left = async_to_sync(_arun)(handler, job, control)
                    if left is not None:
                        raise left
                else:
                    text = handler.run(job, control)
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
        except (*_FAILURES, BaseExceptionGroup) as error:
            if control.suspension is not None:  # in a part of a coroutine, as of a TaskGroup
                return ran._replace(state=_suspend(found, control))
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
            f"no function is set for jobs of the queue {job.queue!r}: call"
            f" leasequeue.handle({job.queue!r}, function), or drain only other queues."
        )


async def _arun(handler: Handler, job: LeasedJob, control: JobControl) -> tuple[str | None, SystemExit | None]:
    """Run a job in the event loop; return an exit, which would end the loop."""
    try:
        return await handler.arun(job, control), None
    except SystemExit as error:
        return None, error


def _function_handler(queue: Queue, function: Callable[..., Any]) -> FunctionHandler:
    return FunctionHandler(queue, function, serializer=engine.run(find_serializer(queue), queue.using))


def _keep_progress(found: PlacedJob, control: JobControl) -> None:
    """Store the job's last progress, as a worker's next renewal would."""
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
def _edge(control: JobControl) -> Iterator[None]:
    """Fail a job that leaves a transaction open, as a worker does; the test's own transaction stays."""
    depths = {wrapper: len(wrapper.atomic_blocks) for wrapper in connections.all(initialized_only=True)}
    found: dict[str, str] = {}
    try:
        yield
    finally:
        for wrapper in connections.all(initialized_only=True):
            depth = depths.get(wrapper, 0)
            if not depth and (left := open_on(wrapper)):
                found[wrapper.alias] = left
                drop(wrapper)
            while len(wrapper.atomic_blocks) > depth:
                found[wrapper.alias] = "an open atomic()"
                wrapper.atomic_blocks[-1].__exit__(TransactionLeftOpen, None, None)
    if error := error_of(control, found):
        raise error


@contextmanager
def _mended() -> Iterator[None]:
    """Let a job's database error break only the job, as in a worker, and not the test's transaction."""
    with ExitStack() as stack:
        for alias in connections:
            connection = connections[alias]
            if connection.connection is not None and connection.in_atomic_block and connection.vendor == "postgresql":
                stack.enter_context(_savepoint(connection))
        yield


@contextmanager
def _savepoint(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Roll a job's writes back only if it broke the transaction: a worker is in autocommit mode."""
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
        # A job that swallowed a database error outside its own atomic block has broken the transaction: the next
        # statement raises.
        if not _broken(connection):
            connection.savepoint_commit(mark)


def _broken(connection: BaseDatabaseWrapper) -> bool:
    return bool(connection.connection.info.transaction_status == TransactionStatus.INERROR)
