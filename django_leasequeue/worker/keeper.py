"""The keeper: renews leases, stores progress, writes the worker's row, and gives surplus jobs back."""

from __future__ import annotations

import logging
import os
import platform
import random
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

import django
import psycopg

from .. import __version__, conf
from ..conf.loglines import about
from ..engine import LeasedJob, Outcome, Release, advance_floors, extend, release
from ..engine.jobs.results import Progress, progress
from ..engine.leases.floor import Proposals
from ..engine.limits import MAX_BATCH
from ..engine.outage import FIRST_RETRY, LAST_RETRY
from ..exceptions import LeaseQueueError
from .held import FLOW, SUSPECT, take_from
from .journal import OrphanRecovery
from .link import DatabaseLink, Unreached, remove_presence, write_presence
from .state import WorkerState

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds between two writings of the worker's row, and the running jobs that it lists.
PRESENCE, MOST_RUNNING = 5.0, 50
#: Jobs in the buffer that would not start within so many seconds are given back.
LONGEST_WAIT = 4.0
#: Seconds between two raises of floors; seconds after a queue's last claim until its floors are left alone.
FLOORS, DRAINED = 0.15, 1.0
#: Claims below which floors can wait a second; queues of one raise.
FEW, MOST_DRAINED = 20, 200
#: The shortest timeout of a statement, in seconds.
LEAST_PATIENCE = 1.0
#: Seconds between searches for killed workers.
INHERIT = 1.0
#: Seconds from the notification of a cancel to a second check; and between checks without a listener.
CANCEL_CHECK = 0.4


class Keeper:
    """Keeps the worker's leases. ``run`` is a thread's body; ``shrink`` lets the fetcher claim fewer jobs ahead."""

    def __init__(self, state: WorkerState, shrink: Callable[[int], None]) -> None:
        self.wakeup = state.keeper
        self._state = state
        self._running = state.running
        self._shrink = shrink
        self._proposals = Proposals()
        #: When floors were raised last, and how many jobs had been claimed then.
        self._raised = (float("-inf"), 0)
        self._searched_at = float("-inf")
        #: The state of ``WorkerState.taken`` at the last check of the held jobs.
        self._taken: dict[int, int] = {}
        #: When to check again (monotonic), by queue: a claim's answer may come after the notification of a cancel.
        self._checks: dict[int, float] = {}
        self.link = DatabaseLink(state.options.database, "keep", state.node, state.outage, waits=False)
        self._recovery = OrphanRecovery(state.options, self.link)
        self._closing = False
        self._row_written_at = float("-inf")
        self._settled_then = (time.monotonic(), 0)
        #: When the last round ended well (monotonic): the worker's health.
        self.well_at = time.monotonic()

    def close(self) -> None:
        """Remove the worker's row, then end."""
        self._closing = True
        self.wakeup.wake()

    def run(self) -> None:
        retry = FIRST_RETRY
        try:
            while not self._closing:
                try:
                    self._round()
                    self._sleep()
                    retry = FIRST_RETRY
                except psycopg.ProgrammingError:
                    raise  # the tables are not ours: a retry does not help
                except Unreached:
                    self._pause(retry * random.uniform(0.5, 1))
                    retry = min(2 * retry, LAST_RETRY)
                except (psycopg.Error, LeaseQueueError):
                    logger.exception("Keeping leases failed, trying again", extra={"node": self._state.node})
                    self._pause(PRESENCE)
            for _ in range(2):  # the second time on a new connection
                with suppress(Unreached):
                    self.link.run(remove_presence(self._state.node))
                    break
        finally:
            self._recovery.close()
            self.link.close()

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + min(seconds, self._state.shortest_lease / 6)
        while not self._closing and (left := end - time.monotonic()) > 0:
            self.wakeup.wait(left)

    def _sleep(self) -> None:
        """Sleep until the next round; while jobs are claimed, raise the floors of their queues meanwhile."""
        began = time.monotonic()
        woken = False
        while not (self._closing or woken):
            end = began + min(
                PRESENCE if self._state.notifications_arrive() else CANCEL_CHECK, self._state.shortest_lease / 6
            )
            left = min([end, *self._checks.values()]) - time.monotonic()
            if left <= 0:
                return
            busy = bool(self._state.drained)
            self.wakeup.sleeping = not busy
            woken = self.wakeup.wait(min(left, FLOORS) if busy and not self._closing else left)
            self.wakeup.sleeping = False
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
        if time.monotonic() - self._searched_at < INHERIT:
            return
        self._searched_at = time.monotonic()
        try:
            if self._recovery.recover():
                self._state.due_changed = True
                self._state.buffer.fetcher.wake()
        except OSError:
            what = "Jobs of killed workers wait until their leases expire: the journals cannot be read"
            logger.exception(what, extra={"node": self._state.node})

    def _round(self) -> None:
        patience = conf.settings.STATEMENT_TIMEOUT
        # A timeout must leave time for a retry before leases end.
        self.link.patience = min(patience, max(LEAST_PATIENCE, self._state.shortest_lease / 3)) if patience else None
        self._renew()
        self._inherit()
        # A job that was lost and came back to this worker may have ended under its newer lease.
        for control, _ in self._running():
            if self._state.held.get(control.job.seq) is not control.job:
                control.abort("lease_lost")
        self._store_progress()
        if time.monotonic() - self._row_written_at >= PRESENCE:
            self._give_back_surplus()
            self._write_worker_row()
        self.well_at = time.monotonic()

    def _due(self, doubtful: Collection[int]) -> Iterator[list[LeasedJob]]:
        """Yield, in batches, held jobs after a third of their lease, and those of ``doubtful`` queues."""
        claims: dict[int, list[LeasedJob]] = {}
        for job in list(self._state.held.values()):
            claims.setdefault(job.token, []).append(job)
        now = time.monotonic()
        due: list[LeasedJob] = []
        for claim, jobs in claims.items():
            lease = self._state.leases.of.get(claim)
            # A round comes every sixth of a lease: leases that are due before the next one are due now.
            fresh = lease is not None and now - lease.since < lease.seconds / 6
            if fresh and jobs[0].queue_id not in doubtful:
                continue
            if len(due) + len(jobs) > MAX_BATCH:
                yield due
                due = []
            due.extend(jobs)
        if due:
            yield due

    def _renew(self) -> None:
        state = self._state
        taken, now = dict(state.taken), time.monotonic()
        changed = {queue_id for queue_id, times in taken.items() if self._taken.get(queue_id) != times}
        again = {queue_id for queue_id, at in self._checks.items() if at <= now}
        if not state.notifications_arrive():
            again.update(job.queue_id for job in list(state.held.values()) if job.flags & FLOW)
        for jobs in self._due(changed | again):
            tokens = [job.token for job in jobs]
            # ``waits=False``: a claim with a slow commit must not delay the others.
            renewal = extend(
                [job.seq for job in jobs], state.node, tokens=tokens, project=state.options.project, waits=False
            )
            settled = self.link.run(renewal)
            outcomes = [(job, settled.outcomes[job.seq]) for job in jobs]
            # All are taken out first, so that a free thread starts none of them.
            fine = (Outcome.OK, Outcome.CANCELLED)
            lost = [entry for entry in outcomes if entry[1] not in fine and take_from(entry[0], state.held)]
            for job, outcome in lost:
                self._lose(job, outcome)
            self._cancel([job for job, outcome in outcomes if outcome is Outcome.CANCELLED])
            for job in {job.token: job for job in jobs if job.seq in settled.seconds}.values():
                seconds = settled.seconds[job.seq]
                state.leases.renewed(job, self.link.asked_at, seconds)
                state.shortest_lease = min(state.shortest_lease, seconds)
        self._taken = taken
        self._checks = {queue_id: at for queue_id, at in self._checks.items() if queue_id not in again}
        self._checks.update(dict.fromkeys(changed, now + CANCEL_CHECK))

    def _cancel(self, jobs: list[LeasedJob]) -> None:
        """Abort running jobs of cancelled workflows; release the others, which the database then removes."""
        if not jobs:
            return
        held = self._state.held
        begun = {id(control.job) for control, _ in self._running()}
        # After the running ones: a run notes its end before it leaves them. Ends that wait for their ack count.
        begun.update(id(entry[1]) for entry in list(self._state.ended))
        back = {job.seq: job for job in jobs if id(job) not in begun and take_from(job, held)}
        cancelled = {id(job) for job in jobs}
        for control, _ in self._running():
            if id(control.job) in cancelled:
                job = back.pop(control.job.seq, None)
                if job is not None:  # it has just begun
                    held[job.seq] = job
                control.abort("cancelled")
        if back:
            releases = [Release(job.seq, job.token, 0) for job in back.values()]
            self.link.run(release(releases, self._state.node, project=self._state.options.project, unstarted=True))
            self._state.figures.add(returned=len(back))

    def _lose(self, job: LeasedJob, outcome: Outcome) -> None:
        """Abort a running job that was lost; one that has not started is no longer held."""
        # A job that is gone was cancelled or removed: no other worker has it.
        gone = outcome is Outcome.NOT_FOUND
        logger.log(
            logging.INFO if gone else logging.WARNING,
            "Job cancelled or removed while it was leased" if gone else "Lease lost",
            extra=about(job, why=outcome.value),
        )
        for control, _ in self._running():
            if control.job is job:
                control.abort("cancelled" if gone else "lease_lost")
                return
        self._state.figures.add(lost=1)

    def _store_progress(self) -> None:
        pending = [
            (control, value[0]) for control, _ in self._running() if (value := control.take_progress()) is not None
        ]
        for at in range(0, len(pending), MAX_BATCH):
            part = pending[at : at + MAX_BATCH]
            values = [Progress(control.job.seq, control.job.token, value) for control, value in part]
            try:
                self.link.run(progress(values, self._state.node, project=self._state.options.project))
            except Unreached:
                for control, value in pending[at:]:
                    control.keep_progress(value)
                raise

    def _give_back_surplus(self) -> None:
        """Give back claimed jobs that would wait long, because jobs have become longer: other workers can run them."""
        now, figures = time.monotonic(), self._state.figures
        settled = figures.completed + figures.failed + figures.retried
        then, settled_then = self._settled_then
        self._settled_then = (now, settled)
        if now - then < PRESENCE / 2:
            return
        options = self._state.options
        rate = (settled - settled_then) / (now - then)
        allowed = int(rate * LONGEST_WAIT) + options.concurrency + options.coroutines
        buffer = self._state.buffer
        if surplus := buffer.take_back(len(buffer.jobs) - allowed):
            self._shrink(allowed // 2)
            self._state.give_back(surplus, unstarted=True)

    def _write_worker_row(self) -> None:
        state, options, figures = self._state, self._state.options, self._state.figures
        now = time.monotonic()
        alone = state.alone and state.alone[0]
        runs = [(control.job, now - since) for control, since in self._running()[:MOST_RUNNING]]
        running = [
            {
                "seq": job.seq,
                "queue": job.queue,
                "name": job.name,
                "seconds": round(seconds, 3),
                **({"suspect": "alone" if job is alone else "apart"} if job.flags & SUSPECT else {}),
            }
            for job, seconds in runs
        ]
        presence = write_presence(
            node=state.node,
            host=socket.gethostname(),
            pid=os.getpid(),
            project=options.project,
            # Before the first reading of the list: those that it was told to take.
            queues=list((state.queues or ([] if options.all_queues else options.queues))[:1_000]),
            concurrency=options.concurrency,
            state=state.status,
            age=now - state.started_at,
            completed=figures.completed,
            failed=figures.failed,
            retried=figures.retried,
            lost=figures.lost,
            running=running,
            info={
                "version": __version__,
                "django": django.get_version(),
                "python": platform.python_version(),
                "held": len(state.held),
                "claimed": figures.claimed,
                "returned": figures.returned,
                "async_concurrency": options.coroutines,
                "prefetch": options.prefetch,
                **({"limits": options.limits} if options.limits else {}),
            },
        )
        self._row_written_at = now
        if self.link.run(presence):
            state.ask_stop("an operator asked for it")
