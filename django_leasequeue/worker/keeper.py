"""The keeper: renews leases, stores progress, says that the worker lives, and gives surplus jobs back."""

from __future__ import annotations

import logging
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import django
import psycopg

from .. import __version__
from ..engine import LeasedJob, Outcome, advance_floors, extend
from ..engine.floor import Proposals
from ..engine.limits import MAX_BATCH
from ..engine.progress import Progress, progress
from ..exceptions import LeaseQueueError
from .buffer import take_from
from .handler import JobControl
from .journal import Heir
from .link import Link, LinkClosed
from .state import WorkerState
from .statements import Presence, say_goodbye, say_presence

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds between signs of life.
PRESENCE = 5.0
#: Running jobs of a sign of life.
MOST_RUNNING = 50
#: A job that waits in the buffer is given back if it would not start within so many seconds.
PATIENCE = 4.0

#: Seconds between two raises of floors; seconds without a claim after which a queue's are left alone.
FLOORS, DRAINED = 0.15, 1.0
#: So few jobs are claimed that floors can wait a second; and the queues of one raise at most.
FEW, MOST_DRAINED = 20, 200
#: Seconds between looks for killed workers.
INHERIT = 1.0

Running = Callable[[], list[tuple[JobControl, float]]]


class Keeper:
    """Keeps what the worker holds. ``run`` is the body of a thread.

    A lease is renewed when a third of it has passed, all that are due with one statement.

    Args:
        state: the worker's.
        running: the controls of running jobs and when they started.
        surplus: called now and then with the number of jobs that may wait in the buffer; gives the others back.
        wake: called when jobs have become free.
    """

    def __init__(
        self, state: WorkerState, running: Running, surplus: Callable[[int], None], wake: Callable[[], None]
    ) -> None:
        self.bell = state.keeper
        self._state = state
        self._running = running
        self._surplus = surplus
        self._wake = wake
        self._proposals = Proposals()
        #: When floors were raised last, and how many jobs had been claimed then.
        self._raised = (float("-inf"), 0)
        self._looked_at = float("-inf")
        self.link = Link(state.options.database, "keep", state.node)
        self._heir = Heir(state.options, self.link)
        self._closing = False
        #: When the lease of each held job began, as far as we know: (the job, monotonic seconds).
        self._since: dict[int, tuple[LeasedJob, float]] = {}
        self._said_at = float("-inf")
        self._settled_then = (time.monotonic(), 0)
        #: When the last round ended well (monotonic): the worker's health.
        self.well_at = time.monotonic()

    def close(self) -> None:
        """Say goodbye, then end."""
        self._closing = True
        self.bell.ring()

    def run(self) -> None:
        """Keep until the worker closes."""
        try:
            while not self._closing:
                try:
                    self._round()
                except psycopg.ProgrammingError:
                    raise  # the tables are not ours: trying again does not help
                except (psycopg.Error, LeaseQueueError):
                    logger.exception("Keeping leases failed, trying again", extra={"node": self._state.node})
                self._sleep()
            self.link.run(say_goodbye(self._state.node))
        except LinkClosed:
            pass
        except BaseException as error:  # noqa: BLE001  (whatever it is, the worker must know)
            self._state.broke("keeper", error)
        finally:
            self._heir.close()
            self.link.close()

    def _sleep(self) -> None:
        """Sleep until the next round; while jobs are claimed, raise the floors of their queues meanwhile."""
        began = time.monotonic()
        rang = False
        while not (self._closing or rang):
            left = began + min(PRESENCE, self._state.shortest_lease / 6) - time.monotonic()
            if left <= 0:
                return
            busy = bool(self._state.drained)
            self.bell.sleeping = not busy
            rang = self.bell.wait(min(left, FLOORS) if busy and not self._closing else left)
            self.bell.sleeping = False
            if busy:
                self._raise_floors()

    def _raise_floors(self) -> None:
        now, claimed, drained = time.monotonic(), self._state.figures.claimed, self._state.drained
        raised_at, claimed_then = self._raised
        if claimed - claimed_then < FEW and now - raised_at < DRAINED:
            return
        self._raised = (now, claimed)
        self.link.run(advance_floors(self._proposals, list(drained)[:MOST_DRAINED]))
        for queue_id, at in list(drained.items()):
            if now - at > DRAINED and drained.get(queue_id) == at:
                drained.pop(queue_id, None)

    def _inherit(self) -> None:
        """Take over what killed workers of this host held."""
        if time.monotonic() - self._looked_at >= INHERIT:
            self._looked_at = time.monotonic()
            try:
                found = self._heir.look()
            except OSError:
                logger.exception(
                    "What killed workers held has to wait for its leases", extra={"node": self._state.node}
                )
                return
            if found:
                self._state.due_changed = True
                self._wake()

    def _round(self) -> None:
        self._renew()
        self._inherit()
        self._tell_replaced()
        self._store_progress()
        if time.monotonic() - self._said_at >= PRESENCE:
            self._give_back_surplus()
            self._say()
        self.well_at = time.monotonic()

    def _due(self) -> list[LeasedJob]:
        """The held jobs of whose lease a third has passed."""
        now = time.monotonic()
        since: dict[int, tuple[LeasedJob, float]] = {}
        due = []
        for job in list(self._state.held.values()):
            lease = (job.deadline - job.claimed_at).total_seconds()
            known = self._since.get(job.seq)
            began = known[1] if known is not None and known[0] is job else now
            since[job.seq] = (job, began)
            # Rounds come at every sixth: what is due before the next one is due now.
            if now - began >= lease / 6:
                due.append(job)
        self._since = since
        return due

    def _renew(self) -> None:
        due = self._due()
        state = self._state
        for at in range(0, len(due), MAX_BATCH):
            jobs = due[at : at + MAX_BATCH]
            began = time.monotonic()
            settled = self.link.run(
                extend(
                    [job.seq for job in jobs],
                    state.node,
                    claims=[job.claim for job in jobs],
                    project=state.options.project,
                )
            )
            for job in jobs:
                if settled.outcomes[job.seq] is Outcome.OK:
                    self._since[job.seq] = (job, began)
                elif take_from(job, state.held):
                    self._lose(job, settled.outcomes[job.seq])

    def _lose(self, job: LeasedJob, outcome: Outcome) -> None:
        """Tell a running job that its lease is gone; one that has not started is not started any more."""
        logger.warning(
            "Lease lost",
            extra={"seq": job.seq, "queue": job.queue, "job": job.name, "key": job.key, "why": outcome.value},
        )
        for control, _ in self._running():
            if control.job is job:
                control.abort("lease_lost")
                return
        self._state.figures.add(lost=1)

    def _tell_replaced(self) -> None:
        """Tell runs whose lease is not held any more: their job was lost, and came back to this very worker, where it
        may have ended by its newer lease.
        """
        for control, _ in self._running():
            if self._state.held.get(control.job.seq) is not control.job:
                control.abort("lease_lost")

    def _store_progress(self) -> None:
        said = [Progress(control.job.seq, control.job.claim, value) for control, value in self._said()]
        for at in range(0, len(said), MAX_BATCH):
            self.link.run(progress(said[at : at + MAX_BATCH], self._state.node, project=self._state.options.project))

    def _said(self) -> Iterator[tuple[JobControl, Any]]:
        for control, _ in self._running():
            said = control.take_progress()
            if said is not None:
                yield control, said[0]

    def _give_back_surplus(self) -> None:
        """Jobs claimed when jobs were short may wait long when they are not: others can have them."""
        now, figures = time.monotonic(), self._state.figures
        then, settled_then = self._settled_then
        self._settled_then = (now, figures.settled)
        if now - then < PRESENCE / 2:
            return
        options = self._state.options
        rate = (figures.settled - settled_then) / (now - then)
        self._surplus(int(rate * PATIENCE) + options.concurrency + options.coroutines)

    def _say(self) -> None:
        """Write the worker's row."""
        state, options, figures = self._state, self._state.options, self._state.figures
        now = time.monotonic()
        presence = Presence(
            node=state.node,
            host=socket.gethostname(),
            pid=os.getpid(),
            project=options.project,
            queues=list(state.queues[:1_000]),
            concurrency=options.concurrency,
            state=state.word,
            age=now - state.started_at,
            completed=figures.completed,
            failed=figures.failed,
            retried=figures.retried,
            lost=figures.lost,
            running=[
                {
                    "seq": control.job.seq,
                    "queue": control.job.queue,
                    "name": control.job.name,
                    "seconds": round(now - since, 3),
                }
                for control, since in self._running()[:MOST_RUNNING]
            ],
            info={
                "version": __version__,
                "django": django.get_version(),
                "python": platform.python_version(),
                "held": len(state.held),
                "claimed": figures.claimed,
                "returned": figures.returned,
                "async_concurrency": options.coroutines,
                "prefetch": options.prefetch,
            },
        )
        self._said_at = now
        if self.link.run(say_presence(presence)):
            state.ask_stop("an operator asked for it")
