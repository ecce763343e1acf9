"""The state and the figures that the parts of a worker share."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, cast

from django.db import connections

from ..conf import process
from ..conf.loglines import exc_info
from ..conf.options import WorkerOptions
from ..engine import LeasedJob
from ..engine.limits import MAX_BATCH
from ..engine.outage import Outage, advice
from ..notify.alarms import Alarm
from .batches import BatchGatherer, BatchHandler, take_apart
from .control import EndingName, Handler, JobControl, JobTimeout
from .held import JobBuffer, Leases
from .journal import Journal
from .link import LinkClosed
from .run import STOPPED, UNSTARTED, Entry, Slot, Timekeeper

logger = logging.getLogger("django_leasequeue.worker")

#: (whether a worker is healthy, figures)
Report = tuple[bool, dict[str, Any]]


class WorkerState:
    """The worker's identity, its held jobs, and its reasons to stop. Made once, passed to every part."""

    def __init__(self, options: WorkerOptions, node: str, handler: Handler) -> None:
        self.options = options
        self.node = node
        self.handler = handler
        #: Whether the handler, by this attribute, runs tasks only.
        self.runs_tasks: bool = getattr(handler, "runs_tasks", False)
        #: Whether the handler, by this method, can now give suspects processes of their own.
        self.isolates: Callable[[], bool] = getattr(handler, "isolates", bool)
        #: Whether the handler, by this method, has jobs that run together.
        self.takes_batches: Callable[[], bool] = getattr(handler, "takes_batches", bool)
        #: Whether the handler, by this method, wants to know of an ending of jobs without metadata.
        self.hears: Callable[[EndingName], bool] = getattr(handler, "hears", lambda ending: True)
        self.batching = cast(BatchHandler, handler)
        self.batches = BatchGatherer(self.batching)
        self.figures = WorkerFigures()
        self.started_at = time.monotonic()
        self.outage = Outage(
            logger, "The database is not reached, trying again", "The database is reached again", node=node
        )
        #: Every job whose lease is ours, from its claim until its end is sent. The thread that takes a job out settles
        #: it; a later end (a result after the lease was lost or given back) finds the job gone and is dropped.
        self.held: dict[int, LeasedJob] = {}
        self.leases = Leases(self.held)
        self.buffer = JobBuffer()
        #: Ends of runs that the database does not know yet, and the alarm of the thread that settles them.
        self.ended: deque[Entry] = deque()
        self.acknowledger = Alarm()
        #: The runs in threads, and in coroutines with their start (monotonic; only their loop changes it).
        self.slots: list[Slot] = []
        self.coroutines: dict[asyncio.Task[None], tuple[JobControl, float]] = {}
        #: A suspect that runs alone, and since when (monotonic).
        self.alone: tuple[LeasedJob, float] | None = None
        # A job that runs together with others has a slot of its own.
        slots = 2 * options.prefetch + options.concurrency + options.coroutines + MAX_BATCH
        self.journal = Journal(node, options, slots, 2 * slots)
        #: How many ends are on their way to the database.
        self.settling = 0
        self._lock = threading.Lock()
        #: Queues with recent claims, and when (monotonic): the keeper raises their floors.
        self.drained: dict[int, float] = {}
        #: The shortest lease so far, in seconds; a wake lets the keeper adapt to it.
        self.shortest_lease = math.inf
        self.keeper = Alarm()
        #: A job was delayed: the fetcher must read again when the next job is due.
        self.due_changed = False
        #: By queue id, how many notifications said that leases were taken from their workers.
        self.taken: Counter[int] = Counter()
        self.notifications_arrive: Callable[[], bool] = bool
        self.main = Alarm()
        self.timekeeper = Timekeeper(self.main, self.ask_recycle)
        self.draining = threading.Event()
        #: Burst or ``max_jobs``: no work is left.
        self.finished = False
        #: The reason to stop, of a signal or an operator; "" without one.
        self.stop_asked = ""
        #: The second signal: do not wait for running jobs.
        self.hurry = False
        #: The reason to replace the process: a job does not end.
        self.recycle = ""
        self.broken: BaseException | None = None
        self.status = "running"  # or "draining"
        self.queues: list[str] = []

    @cached_property
    def timeout(self) -> Callable[[LeasedJob], tuple[float | None, float | None]]:
        """The handler's method of that name, which gets the worker's own timeouts if there are any."""
        ask, queues, usual = self.handler.timeout, self.options.timeouts, self.options.timeout
        return (lambda job: ask(job, queues.get(job.queue, usual) or None)) if queues or usual else ask

    @property
    def empty(self) -> bool:
        """Whether nothing is held and the database knows of every end."""
        return not (self.held or self.settling)

    def settle(self, change: int) -> None:
        """Note that so many ends are on their way to the database, or (negative) have arrived."""
        with self._lock:
            self.settling += change

    def running(self) -> list[tuple[JobControl, float]]:
        shown = [(slot.control, slot.since) for slot in self.slots]
        in_threads = [(control, since) for control, since in shown if control is not None]
        runs = in_threads + list(self.coroutines.copy().values())
        return [(control, since) for run, since in runs for control in run.members or (run,)]

    def give_back(self, jobs: Sequence[LeasedJob], *, unstarted: bool, delay_ms: int = 0) -> None:
        """Release held jobs without a failure; the delivery of ``unstarted`` jobs does not count."""
        kind = UNSTARTED if unstarted else STOPPED
        self.ended.extend([(kind, job, None, None, delay_ms) for job in take_apart(jobs)])
        self.acknowledger.wake()

    def finish(self) -> None:
        self.finished = True
        self.main.wake()

    def ask_stop(self, why: str) -> None:
        """Ask for a graceful stop. Safe in a signal handler."""
        self.stop_asked = self.stop_asked or why
        self.main.wake()

    def ask_hurry(self, why: str) -> None:
        """Ask for a stop that does not wait for running jobs. Safe in a signal handler."""
        self.hurry = True
        self.ask_stop(why)

    def ask_recycle(self, why: str) -> None:
        self.recycle = self.recycle or why
        self.main.wake()

    def start_thread(self, part: str, body: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self.attend, args=(part, body), name=f"leasequeue-{part}", daemon=True)
        thread.start()
        return thread

    def attend(self, part: str, body: Callable[[], None]) -> bool:
        """Run the body of a thread; an error that ends it stops the worker. Return whether there was none."""
        process.own_thread(JobTimeout)
        try:
            body()
        except LinkClosed:
            pass
        except BaseException as error:  # noqa: BLE001  (it stops the worker)
            self.breaks(part, error)
            return False
        finally:
            connections.close_all()  # those that jobs and receivers of signals opened in this thread
        return True

    def breaks(self, part: str, error: BaseException) -> None:
        """Stop the worker for an error of one of its parts."""
        self.broken = error if self.broken is None else self.broken
        self.main.wake()
        if (text := advice(error)) is not None:
            logger.critical(text)
        else:
            about_it = {"part": part, "node": self.node}
            logger.critical("Part of the worker broke", exc_info=exc_info(error), extra=about_it)


_lock = threading.Lock()


@dataclass(slots=True)
class WorkerFigures:
    """Counts of jobs since the start, by outcome, as the database has accepted it.

    ``failed``: for good, or dead; ``retried``: failed, with a retry to come; ``returned``: not started, or stopped with
    the worker; ``suspended``: asleep, or waiting for an event; ``lost``: the lease was gone before the job was settled.
    ``batches``: runs of batch tasks; ``batched_jobs``: their jobs.
    """

    claimed: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    returned: int = 0
    suspended: int = 0
    lost: int = 0
    batches: int = 0
    batched_jobs: int = 0

    def add(self, **counts: int) -> None:
        with _lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def as_dict(self) -> dict[str, int]:
        return asdict(self)
