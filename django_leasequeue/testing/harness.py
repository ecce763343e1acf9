"""The harness through which a test uses the queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple, Self

from asgiref.sync import sync_to_async
from django.db.models import Min
from django.test import SimpleTestCase

from ..conf import process
from ..engine import HELD, clock, codec
from ..engine.clock import Clock
from ..exceptions import InvalidOption
from ..models import FlowTurn, JobState, LiveJob, TurnKind
from ..models import Queue as QueueRow
from ..notify import close_listeners
from ..queue.queue import Queue
from ..tasks.api import Task
from ..tasks.arguments import encode
from .running import JobRunner, Ran

#: Jobs of one ``drain`` at most: more are probably a job that enqueues itself.
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
    """Runs and inspects jobs in a test's own thread and connection, without a worker.

    So it works inside the transaction of a ``TestCase``, where no worker could see a job, and in tests with
    ``transaction=True``. Jobs of Django tasks run as in a worker; set the function for jobs of a ``Queue`` with
    ``handle``. Inside a transaction ``enqueue_and_wait`` runs jobs itself instead of waiting.

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
        before, process.switches = process.switches, process.Switches(True, self, embedded=False)
        self._held.callback(setattr, process, "switches", before)
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()
        process.forget()
        # A connection that still listens would keep the test database from being removed.
        close_listeners()
        if error[0] is None and self._runner.crash_after is not None:
            raise AssertionError(f"crash_after({self._runner.crash_after!r}): no job that ran came to this step.")

    def __call__(self) -> None:
        """Run enqueued jobs for a caller that would wait."""
        self.drain()

    # The clock

    @property
    def clock(self) -> Clock:
        """The queue's clock, stopped from the first use on: every deadline, delay and TTL uses it."""
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

    # Inspection

    def enqueued(self, queue: Queue | str | None = None) -> list[Seen]:
        """Return the enqueued jobs, in order: those that ``drain`` has run, and those that wait.

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
        wanted = None if queue is None else _queue_key(queue)
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
            AssertionError: none fits, or another number than ``count``; the message lists the jobs.
        """
        marks = {item: value for item, value in (("key", key), ("name", name), ("tag", tag)) if value is not _ANY}
        if isinstance(what, Task):
            there = [job for job in self.enqueued() if job.name == what.module_path]
            # For a task these are names of its own arguments.
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
            looked_for = (
                f"a job of {_queue_key(what)[1]!r}" + (f" with {args[0]!r}" if args else "") + f" {marks or ''}"
            )
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
            AssertionError: there is one; the message lists the jobs.
        """
        there = self.enqueued(queue)
        if there:
            raise AssertionError(f"expected no jobs, there are {len(there)}: {there[:10]}")

    # Running

    def handle(self, queue: Queue | str, function: Callable[..., Any]) -> None:
        """Set the function that runs the jobs of a queue.

        Args:
            queue: its handle or its name.
            function: takes the ``Job``, and the ``JobControl`` if it has a second parameter, as for ``Consumer``.
        """
        self._runner.handle(queue, function)

    def drain(self, *queues: Queue | str, raise_errors: bool = False, advance: bool = False) -> list[Ran]:
        """Run every ready job, and the jobs that they enqueue, until there is none; return the outcomes.

        It runs one queue after the other, each in its order. Delayed jobs, retries that wait for their backoff and jobs
        that wait for their rate are not ready: move the clock with ``advance`` and drain again.

        Args:
            queues: only these; by default all.
            raise_errors: whether an error of a job ends the drain. Else it is logged, and in the outcome.
            advance: when no job is ready, move the clock to the next delayed job or start of a rate and continue:
                sleeps, retries and rates take no time; waits for an event that does not come end by their timeout.

        Raises:
            AssertionError: no function is set for a job; or more than 10,000 jobs ran.
        """
        places = [_queue_key(queue) for queue in queues]
        ran: list[Ran] = []
        tried: set[tuple[str, int]] = set()
        if advance:
            self.freeze()
        while (found := self._runner.next(places)) is not None or (advance and self._skip(places, tried)):
            if found is None:
                continue
            tried.clear()
            ran.extend(self._runner.run(found, raise_errors=raise_errors))
            if len(ran) >= MAX_JOBS:
                raise AssertionError(f"drain() ran {MAX_JOBS} jobs and there are more: does one enqueue itself?")
        return ran

    def crash_after(self, step: str) -> None:
        """Let the next run of a step crash after its record: its job is delivered again.

        Args:
            step: its name, ``page#2`` for the second one of a name; or that of a sleep. A test in which it never came
                fails.
        """
        self._runner.crash_after = step

    def _skip(self, places: Sequence[tuple[str, str]], tried: set[tuple[str, int]]) -> bool:
        """Move the clock to the next delayed job or start of a rate; return whether there is one.

        ``tried``: the keys of rates whose start came and made no job ready, as another limit holds it.
        """
        moments: list[tuple[datetime, tuple[str, int] | None]] = []
        for alias in self._runner.aliases():
            # Jobs that wait for another job have no due time.
            delayed = LiveJob.objects.using(alias).filter(
                state=JobState.DELAYED, available_at__gt=self.clock.now, available_at__lt=HELD
            )
            starts = FlowTurn.objects.using(alias).filter(kind=TurnKind.ADMIT, at__gt=self.clock.now)
            if places:
                ids = [row.pk for row in QueueRow.objects.using(alias) if (row.project, row.name) in places]
                delayed, starts = delayed.filter(queue_id__in=ids), starts.filter(queue_id__in=ids)
            if (first := delayed.aggregate(first=Min("available_at"))["first"]) is not None:
                moments.append((first, None))
            for key, at in starts.values_list("key", "at"):
                if key is not None and (alias, key) not in tried:
                    moments.append((at, (alias, key)))
        if moments:
            self.clock.now, start = min(moments, key=itemgetter(0))
            if start is not None:
                tried.add(start)
        return bool(moments)

    async def adrain(self, *queues: Queue | str, raise_errors: bool = False, advance: bool = False) -> list[Ran]:
        """Async twin of ``drain``."""
        return await sync_to_async(self.drain)(*queues, raise_errors=raise_errors, advance=advance)


_NOTHING = Seen("", "", 0, None, None, None, None, False)


def _queue_key(queue: Queue | str) -> tuple[str, str]:
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
