"""Runs jobs in a test's own thread and connection, as in a worker."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from asgiref.sync import async_to_sync
from django.db import connections
from django.test.testcases import DatabaseOperationForbidden  # type: ignore[attr-defined]  # the stubs lack it

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
from ..worker.batches import Answers, BatchControl, BatchGroup
from ..worker.control import EndingName, GiveUp, Handler, JobControl
from ..worker.durable import Crashed, Suspended
from .edges import guarded, mended

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

    def run(self, found: PlacedJob, *, raise_errors: bool) -> list[Ran]:
        """Run a job, with ready ones that a worker would run together with it, and settle them.

        With ``raise_errors`` then raise the error, of several the first.
        """
        handler = self._handler(found)
        group = handler.batch_of(found.job) if isinstance(handler, TaskHandler) else None
        if group is None or not isinstance(handler, TaskHandler):
            return [self._run_one(found, handler, raise_errors=raise_errors)]
        jobs = self._together(found, handler, group)
        control = BatchControl([JobControl(job, NODE, found.alias) for job in jobs])
        answers: Answers = []
        try:
            with mended(), guarded(control):
                run = async_to_sync(handler.arun_batch) if handler.is_async(found.job) else handler.run_batch
                answers = run(jobs, control)
                _raise_first(error for _, error in answers)  # so that what it broke is mended
        except (*_FAILURES, BaseExceptionGroup) as raised:
            if not answers or isinstance(raised, TransactionLeftOpen):
                answers = [(None, raised)] * len(jobs)
        done: list[Ran] = []
        for (text, error), own in zip(answers, control.members, strict=True):
            placed = found._replace(job=own.job)
            ran = self._note(placed)
            if error is not None:
                done.append(self._failed(placed, handler, own, ran, error))
            else:
                done.append(self._completed(placed, handler, own, ran, text) if _finish(placed, own, text) else ran)
        if raise_errors:
            _raise_first(ran.error for ran in done)
        return done

    def _together(self, found: PlacedJob, handler: TaskHandler, group: BatchGroup) -> list[LeasedJob]:
        """Return a job with the ready ones of its group; others go back to where they were."""
        alias, project, first = found
        jobs, back = [first], []
        if group.size > 1:
            claiming = engine.claim(first.queue, NODE, group.size - 1, project=project, strict=False)
            for job in engine.run(claiming, alias):
                if handler.batch_of(job) == group:
                    jobs.append(job)
                else:
                    back.append(engine.Release(job.seq, job.token, 0))
        if back:
            engine.run(engine.release(back, NODE, project=project, unstarted=True), alias)
        return jobs

    def _note(self, found: PlacedJob) -> Ran:
        alias, project, job = found
        payload = self.payload(alias, project, job.queue, job.data, job.body)
        self.ran.append((found, payload))
        return Ran(job.queue, job.seq, job.key, job.name, payload, "lost")

    def _run_one(self, found: PlacedJob, handler: Handler, *, raise_errors: bool) -> Ran:
        alias, project, job = found
        control = JobControl(job, NODE, alias)
        control.crash_after = self.crash_after
        ran = self._note(found)
        try:
            with mended(), guarded(control):
                if handler.is_async(job):
                    text, left = async_to_sync(_arun)(handler, job, control)
                    if left is not None:
                        raise left
                else:
                    text = handler.run(job, control)
            if not _finish(found, control, text):
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
            ran = self._failed(found, handler, control, ran, error)
            if raise_errors:
                raise
            return ran
        return self._completed(found, handler, control, ran, text)

    def _failed(self, found: PlacedJob, handler: Handler, control: JobControl, ran: Ran, error: BaseException) -> Ran:
        _keep_progress(found, control)
        state = _fail(found, handler, control, error)
        logger.error("A job failed: %s %s", ran.queue, ran.name or ran.key or ran.seq, exc_info=error)
        return ran._replace(state=state, error=error)

    def _completed(self, found: PlacedJob, handler: Handler, control: JobControl, ran: Ran, text: str | None) -> Ran:
        alias, project, job = found
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


def _raise_first(errors: Iterable[BaseException | None]) -> None:
    for error in errors:
        if error is not None:
            raise error


def _finish(found: PlacedJob, control: JobControl, text: str | None) -> bool:
    """Store the end of a job that is done; return whether its lease was there."""
    alias, project, job = found
    ending = engine.Ending(
        job.seq, job.token, result_json=text, body=control.result_body, result_ttl_ms=control.result_ttl_ms
    )
    _keep_progress(found, control)
    if control.settled:
        return True
    settled = engine.run(engine.finish([ending], NODE, project=project), alias)
    return settled.outcomes[job.seq] is engine.Outcome.OK


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
