"""The harness through which a test uses the queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any, NamedTuple, Self

from asgiref.sync import sync_to_async
from django.db.models import Min
from django.test import SimpleTestCase

from ..conf import process
from ..engine import HELD, clock, codec
from ..engine.clock import Clock
from ..exceptions import InvalidOption
from ..models import JobState, LiveJob
from ..models import Queue as QueueRow
from ..notify import close_listeners
from ..queue.queue import Queue
from ..tasks.api import Task
from ..tasks.arguments import encode
from .running import JobRunner, Ran

#: Jobs that one ``drain`` runs at most: more are a loop that enqueues itself.
MAX_JOBS = 10_000

_ANY: Any = object()


class Seen(NamedTuple):
    """A job that was enqueued. ``ran`` tells whether ``drain`` has run it since."""

    project: str
    queue: str
    seq: int
    key: str | None
    name: str | None
    tag: str | None
    payload: Any
    ran: bool


class Harness:
    """The queues in the hands of a test: without a worker process, in the test's own thread and connection.

    So it works inside the transaction of a ``TestCase``, where no worker could see a job, as well as in tests with
    ``transaction=True``. Jobs of Django tasks run as their worker would run them; for jobs of a ``Queue`` say with
    ``handle`` what runs them. Inside a transaction ``enqueue_and_wait`` runs jobs itself in place of waiting.

    Args:
        using: alias of the database; by default every one that may hold queues.
    """

    def __init__(self, using: str | None = None) -> None:
        self._using = using
        self._runner = JobRunner(using)
        self._held = ExitStack()
        self._clock: Clock | None = None
        #: Whether ``enqueue_and_wait`` runs jobs itself in tests with ``transaction=True`` as well.
        self.always = False

    def __enter__(self) -> Self:
        before, process.switches = process.switches, process.Switches(django_connection=True, inline=self)
        self._held.callback(setattr, process, "switches", before)
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()
        process.forget()
        # A connection that still listens would keep the test database from being removed.
        close_listeners()

    def __call__(self) -> None:
        """Run what is enqueued, in place of a caller's waiting."""
        self.drain()

    # The clock

    @property
    def clock(self) -> Clock:
        """The queue's clock, stopped from the first use on: every deadline, delay and TTL goes by it."""
        if self._clock is None:
            self._clock = self._held.enter_context(clock.hold())
        return self._clock

    def freeze(self, at: datetime | None = None) -> Clock:
        """Stop the queue's clock, now or at an aware time; return it."""
        if at is not None:
            self.clock.now = at
        return self.clock

    def advance(self, **units: float) -> datetime:
        """Stop the queue's clock and move it: ``advance(minutes=5)``; return the new time."""
        return self.clock.advance(**units)

    # What was enqueued

    def enqueued(self, queue: Queue | str | None = None) -> list[Seen]:
        """Return the jobs that were enqueued, in order: those that ``drain`` ran, and those that are there now.

        Args:
            queue: only this one's.
        """
        seen = {
            (job.seq, alias): Seen(project, job.queue, job.seq, job.key, job.name, job.tag, payload, True)
            for (alias, project, job), payload in self._runner.ran
        }
        for alias in self._runner.aliases():
            rows = LiveJob.objects.using(alias).exclude(state=JobState.RECORD)
            names = {row.pk: (row.project, row.name) for row in QueueRow.objects.using(alias).all()}
            for row in rows.order_by("seq"):
                project, name = names[row.queue_id]
                body = None if row.body is None else bytes(row.body)
                payload = self._runner.payload(alias, project, name, row.data, body)
                place = (row.seq, alias)
                seen[place] = Seen(project, name, row.seq, row.key, row.name, row.tag, payload, place in seen)
        wanted = None if queue is None else _place(queue)
        return [job for _, job in sorted(seen.items()) if wanted is None or (job.project, job.queue) == wanted]

    def assert_enqueued(
        self,
        what: Queue | str | Task[..., Any],
        *args: Any,
        count: int | None = None,
        key: str | None = _ANY,
        name: str | None = _ANY,
        tag: str | None = _ANY,
        **kwargs: Any,
    ) -> Seen:
        """Assert that a job was enqueued, whether or not ``drain`` has run it; return the first that fits.

        ``assert_enqueued(send_mail, "a@example.org", subject="Hi")`` for a task with these arguments (none given: any);
        ``assert_enqueued("emails", {"to": "a@example.org"}, key="welcome-1")`` for a queue.

        Args:
            what: a Django task, a ``Queue`` or a queue's name.
            args: the task's arguments, or the payload.
            count: how many must fit; ``None`` for at least one.
            key: of a queue's job.
            name: of a queue's job.
            tag: of a queue's job.
            kwargs: the task's keyword arguments.

        Raises:
            AssertionError: none fits, or another number than ``count``; it tells what there is.
        """
        marks = {item: value for item, value in (("key", key), ("name", name), ("tag", tag)) if value is not _ANY}
        if isinstance(what, Task):
            there = [job for job in self.enqueued() if job.name == what.module_path]
            # These are names of the task's own arguments here.
            given = {"args": args, "kwargs": kwargs | marks}
            called = {item: encode(value) for item, value in given.items() if value}
            fits = [job for job in there if not called or _same(job.payload or {}, called)]
            looked_for = f"{what.module_path} with {called or 'any arguments'}"
        else:
            if len(args) > 1 or kwargs:
                raise TypeError("of a queue's job only one payload, key, name and tag can be asserted")
            there = self.enqueued(what)
            fits = [
                job
                for job in there
                if (not args or job.payload in (args[0], _stored(args[0])))
                and all(getattr(job, item) == value for item, value in marks.items())
            ]
            looked_for = f"a job of {_place(what)[1]!r}" + (f" with {args[0]!r}" if args else "") + f" {marks or ''}"
        if (count is None and not fits) or (count is not None and len(fits) != count):
            wanted = "at least one" if count is None else str(count)
            found = "\n".join(f"  {job.queue} {job.key or job.seq} {job.name or ''} {job.payload!r}" for job in there)
            raise AssertionError(
                f"expected {wanted} of {looked_for}, found {len(fits)}. Enqueued there:\n{found or '  nothing'}"
            )
        return fits[0] if fits else _NOTHING

    def assert_nothing_enqueued(self, queue: Queue | str | None = None) -> None:
        """Assert that no job was enqueued, in one queue or in any.

        Raises:
            AssertionError: it tells what there is.
        """
        there = self.enqueued(queue)
        if there:
            raise AssertionError(f"expected no jobs, there are {len(there)}: {there[:10]}")

    # Running

    def handle(self, queue: Queue | str, function: Callable[..., Any]) -> None:
        """Say what runs the jobs of a queue.

        Args:
            queue: its handle or its name.
            function: takes the ``Job``, and the ``JobControl`` if it has a second parameter, as for ``Consumer``.
        """
        self._runner.handle(queue, function)

    def drain(self, *queues: Queue | str, raise_errors: bool = False, advance: bool = False) -> list[Ran]:
        """Run every job that is ready, and those that they enqueue, until there is none; return what became of each.

        One queue after the other, each in its order.

        Delayed jobs, and retries that wait for their backoff, are not ready: move the clock with ``advance`` and drain
        again.

        Args:
            queues: only these; by default all.
            raise_errors: whether what a job raises ends the draining. Else it is logged, and in the answer.
            advance: when nothing is ready, move the clock to the time of the next delayed job, and go on: sleeps and
                retries take no time. Waits for an event that does not come end by their timeout.

        Raises:
            AssertionError: nothing is known that could run a job; or more than 10,000 jobs ran.
        """
        places = [_place(queue) for queue in queues]
        ran: list[Ran] = []
        while (found := self._runner.next(places)) is not None or (advance and self._skip(places)):
            if found is None:
                continue
            ran.append(self._runner.run(found, raise_errors=raise_errors))
            if len(ran) >= MAX_JOBS:
                raise AssertionError(f"{MAX_JOBS} jobs ran and there are more: one that enqueues itself?")
        return ran

    def crash_after(self, step: str) -> None:
        """Have the next run that does a step die behind its record: its job is delivered again.

        Args:
            step: its name, ``page#2`` for the second one of a name; or that of a sleep.
        """
        self._runner.crash_after = step

    def _skip(self, places: Sequence[tuple[str, str]]) -> bool:
        """Move the clock to when the next delayed job is due; return whether there is one."""
        due = []
        for alias in self._runner.aliases():
            # What waits for another job is not due at any time.
            delayed = LiveJob.objects.using(alias).filter(state=JobState.DELAYED, available_at__lt=HELD)
            if places:
                ids = [row.pk for row in QueueRow.objects.using(alias) if (row.project, row.name) in places]
                delayed = delayed.filter(queue_id__in=ids)
            if (first := delayed.aggregate(first=Min("available_at"))["first"]) is not None:
                due.append(first)
        if due:
            self.clock.now = max(self.clock.now, min(due))
        return bool(due)

    async def adrain(self, *queues: Queue | str, raise_errors: bool = False, advance: bool = False) -> list[Ran]:
        """Async twin of ``drain``."""
        return await sync_to_async(self.drain)(*queues, raise_errors=raise_errors, advance=advance)


_NOTHING = Seen("", "", 0, None, None, None, None, False)


def _place(queue: Queue | str) -> tuple[str, str]:
    return ("", queue) if isinstance(queue, str) else (queue.project, queue.name)


def _same(data: Mapping[str, Any], called: Mapping[str, Any]) -> bool:
    return bool({item: value for item, value in data.items() if value and item != "inputs"} == _stored(called))


def _stored(value: Any) -> Any:
    try:
        return codec.loads(codec.dumps(value))
    except InvalidOption:
        return value


class LeaseQueueTestMixin(SimpleTestCase):
    """For unittest: ``self.leasequeue`` is a ``Harness`` during each test. Put it before ``TestCase``."""

    leasequeue: Harness

    def setUp(self) -> None:
        super().setUp()
        self.leasequeue = self.enterContext(Harness())
