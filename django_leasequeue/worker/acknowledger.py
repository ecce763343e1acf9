"""The acknowledger: tells the database how runs ended, many with one statement."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial

import psycopg
from django.db import close_old_connections

from ..engine import Ending, Failure, LeasedJob, Outcome, Release, Settled, finish, release
from ..engine.jobs.results import Progress, progress
from ..engine.jobs.steps import wake_waiting
from ..exceptions import LeaseQueueError
from ..notify.alarms import Alarm
from .buffer import take_from
from .control import EndingName, JobControl
from .leases import FLOW
from .link import DatabaseLink
from .logs import JOBS, about
from .run import COMPLETED, FAILED, RETRY, STOPPED, SUSPENDED, UNSTARTED, Entry, plain_failure, trace_of
from .state import WorkerState

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds between looks of the lead while all that has ended is of claims that the helper settles.
APART = 0.01


class Acknowledger:
    """Settles what is in ``state.ended``. ``run`` is the body of a thread.

    While threads have more to do it collects for a few milliseconds, or until a statement's worth is there; as soon as
    nothing more is to be started it goes at once, so that who waits for an answer has it.
    """

    def __init__(self, state: WorkerState) -> None:
        self.done, self.wakeup = state.ended, state.acknowledger
        self._state = state
        self._buffer = state.buffer
        # When there is much a helper settles, too: while one waits for the disk, the other is computing.
        self._links = [DatabaseLink(state.options.database, "ack", state.node, state.outage) for _ in range(2)]
        self._helper = Alarm()
        #: By session: the claims with limits or workflows that it settles now.
        self._at_work: dict[DatabaseLink, set[int]] = {link: set() for link in self._links}
        self._taking = threading.Lock()
        self._closing = False

    def close(self) -> None:
        self._closing = True
        self.wakeup.wake()

    def give_up(self) -> None:
        for link in self._links:
            link.give_up()

    def run(self) -> None:
        helper = self._state.start_thread("acknowledger", partial(self._help, self._links[1]))
        # The worker hears of this thread's error before the helper is joined.
        self._state.attend("acknowledger", partial(self._lead, self._links[0]))
        self._closing = True
        self._helper.wake()
        helper.join()

    def _lead(self, link: DatabaseLink) -> None:
        with closing(link):
            while self._gather():
                if not self._settle_some(link):
                    self.wakeup.wait(APART)

    def _help(self, link: DatabaseLink) -> None:
        with closing(link):
            while not self._closing:
                self._helper.wait()
                while len(self.done) >= self._state.options.ack_batch and self._settle_some(link):
                    pass

    def _gather(self) -> bool:
        """Wait until it is time for a statement; return False when there will be none."""
        while not self.done:
            if self._closing:
                return False
            self.wakeup.doze(None, lambda: self.done or self._closing)
        options = self._state.options
        if options.ack_ms and len(self.done) < options.ack_batch and self._buffer.jobs:
            # Rung when a thread finds nothing more to start.
            self.wakeup.wait(options.ack_ms / 1_000)
        return True

    def _settle_some(self, link: DatabaseLink) -> bool:
        """Settle one statement's worth; let the helper begin with what is left, if that is as much again.

        Return whether there was any that the other session is not settling.
        """
        done, options = self.done, self._state.options
        count = min(len(done), options.ack_batch)
        self._state.settle(count)
        try:
            entries = self._take(count, link)
            if len(done) >= options.ack_batch:
                self._helper.wake()
            self._store_progress(entries, link)
            ended = [entry for entry in entries if entry[0] <= FAILED]
            self._isolate(ended, self._finish, link)
            if len(ended) < len(entries):
                self._isolate([entry for entry in entries if entry[0] in (RETRY, STOPPED)], self._release, link)
                self._isolate([entry for entry in entries if entry[0] == UNSTARTED], self._return, link)
                self._isolate([entry for entry in entries if entry[0] == SUSPENDED], self._suspend, link)
        finally:
            self._state.settle(-count)
            limited, self._at_work[link] = bool(self._at_work[link]), set()
            # Receivers of signals may have used Django's connection: as after a request.
            close_old_connections()
        fetcher = self._buffer.fetcher
        # The end of a job under a limit makes the next one ready: this worker knows first, and fills its slot soonest.
        if limited and link is not self._links[0]:
            self.wakeup.wake()  # the lead may wait for the rest of these claims
        ending = options.burst or options.max_jobs > 0 or self._state.draining.is_set()
        if limited or fetcher.sleeping or (ending and self._state.empty):
            fetcher.wake()
        return bool(entries)

    def _take(self, count: int, link: DatabaseLink) -> list[Entry]:
        """Take out what is ours to settle; what was lost or given back meanwhile is left alone.

        Jobs of a claim with limits that the other session settles stay, too: a second statement on that claim would
        wait for the first, which looks for the next jobs of their keys.
        """
        held = self._state.held
        entries: list[Entry] = []
        left: list[Entry] = []
        with self._taking:
            busy = set[int]().union(*self._at_work.values())
            for _ in range(count):
                try:
                    entry = self.done.popleft()
                except IndexError:
                    break
                if entry[1].token in busy:
                    left.append(entry)
                elif take_from(entry[1], held) or (entry[2] is not None and entry[2].settled):
                    entries.append(entry)
                elif entry[0] != UNSTARTED:
                    self._state.figures.add(lost=1)
                    if entry[2] is None or entry[2].reason != "cancelled":  # of those the keeper has said it
                        _log_lost(entry[1], "the lease was gone")
            self.done.extendleft(reversed(left))
            self._at_work[link] = {entry[1].token for entry in entries if entry[1].flags & FLOW}
        return entries

    def _store_progress(self, entries: list[Entry], link: DatabaseLink) -> None:
        """Store what jobs said since leases were renewed last: the end of a job is the last chance."""
        pending = [
            Progress(job.seq, job.token, value[0])
            for _, job, control, *_ in entries
            if control is not None and (value := control.take_progress()) is not None
        ]
        if not pending:
            return
        try:
            link.run(progress(pending, self._state.node, project=self._state.options.project))
        except (psycopg.Error, LeaseQueueError):
            logger.warning("The last progress of jobs is not kept", exc_info=True, extra={"jobs": len(pending)})

    def _isolate(
        self, entries: list[Entry], settle: Callable[[list[Entry], DatabaseLink], None], link: DatabaseLink
    ) -> None:
        """Settle entries; when the database refuses them for their content, find the one it refuses."""
        if not entries:
            return
        try:
            settle(entries, link)
        except (psycopg.Error, LeaseQueueError) as error:
            if len(entries) > 1:
                middle = len(entries) // 2
                self._isolate(entries[:middle], settle, link)
                self._isolate(entries[middle:], settle, link)
            else:
                self._refused(entries[0], error, link)

    def _refused(self, entry: Entry, error: Exception, link: DatabaseLink) -> None:
        kind, job, control, *_ = entry
        if kind in (COMPLETED, FAILED):
            logger.warning("The end of a job was refused: it is tried again", extra=about(job, error=str(error)))
            if control is not None:
                control.error = error
            self._isolate([(RETRY, job, control, plain_failure(error), None)], self._release, link)
        else:
            logger.error("A job could not be given back: its lease will expire", exc_info=error, extra=about(job))

    def _finish(self, entries: list[Entry], link: DatabaseLink) -> None:
        endings = []
        for kind, job, control, value, _ in entries:
            if control is not None and control.settled:
                continue
            body = None if control is None else control.result_body
            result, failure = (value, None) if kind == COMPLETED else (None, value)
            ran, ttl = _run_facts(control)
            endings.append(Ending(job.seq, job.token, None, result, body, failure, ttl, ran))
        losses = link.losses
        settled = link.run(finish(endings, self._state.node, project=self._state.options.project))
        again = link.losses > losses
        completed = failed = lost = 0
        tell = self._tell
        outcomes = settled.outcomes
        for kind, job, control, value, _ in entries:
            outcome = outcomes.get(job.seq, Outcome.OK)
            # With the connection the answer was lost, not the commit: the job is finished, and not there any more.
            if outcome is not Outcome.OK and not (again and outcome is Outcome.NOT_FOUND):
                lost += 1
                _log_lost(job, outcome)
            elif kind == COMPLETED:
                completed += 1
                tell(job, "completed", value)
            else:
                failed += 1
                _log_failure(logging.ERROR, "Job failed for good", job, value, control)
                tell(job, "failed", None, value)
        self._state.figures.add(completed=completed, failed=failed, lost=lost)

    def _give_back(
        self, entries: list[Entry], link: DatabaseLink, *, unstarted: bool = False, keeping: Sequence[int] | None = None
    ) -> Settled:
        """Release jobs: suspended ones, of which some are ``keeping`` the slots of their limits, or others."""
        releases = [
            Release(job.seq, job.token, delay, failure, *_run_facts(None if unstarted else control))
            for _, job, control, failure, delay in entries
        ]
        settling = release(
            releases,
            self._state.node,
            project=self._state.options.project,
            unstarted=unstarted,
            suspended=keeping is not None,
            keeping=keeping or (),
        )
        return link.run(settling)

    def _release(self, entries: list[Entry], link: DatabaseLink) -> None:
        losses = link.losses
        settled = self._give_back(entries, link)
        again = link.losses > losses
        figures = self._state.figures
        if any(place.state == "delayed" for place in settled.released.values()):
            self._state.due_changed = True
            self._buffer.fetcher.wake()
        for kind, job, control, failure, _ in entries:
            place = settled.released.get(job.seq)
            if place is None:
                # With the connection the answer was lost, not the commit.
                if not again:
                    self._lost(job, settled)
                continue
            if kind == STOPPED:
                figures.add(returned=1)
                continue
            if place.state == "dead":
                figures.add(failed=1)
                _log_failure(logging.ERROR, "Job is dead after its last try", job, failure, control)
                self._tell(job, "dead", None, failure, place.available_at)
            else:
                figures.add(retried=1)
                _log_failure(logging.WARNING, "Job failed and will be tried again", job, failure, control)
                self._tell(job, "failing", None, failure, place.available_at)

    def _tell(
        self,
        job: LeasedJob,
        ending: EndingName,
        result_json: str | None = None,
        failure: Failure | None = None,
        available_at: datetime | None = None,
    ) -> None:
        try:
            self._state.handler.settled(
                job, ending, result_json=result_json, failure=failure, available_at=available_at
            )
        except Exception:
            logger.exception("The handler raised when it was told of a job's end", extra={"seq": job.seq})

    def _return(self, entries: list[Entry], link: DatabaseLink) -> None:
        for _, job, control, *_ in entries:
            if control is not None:  # its handler had it already
                self._state.leases.was_late(job)
        settled = self._give_back(entries, link, unstarted=True)
        self._state.figures.add(returned=sum(not self._lost(job, settled) for _, job, *_ in entries))

    def _suspend(self, entries: list[Entry], link: DatabaseLink) -> None:
        found = [(job.seq, control.suspension) for _, job, control, *_ in entries if control and control.suspension]
        keeping = [seq for seq, suspension in found if suspension.keeps_slot]
        settled = self._give_back(entries, link, keeping=keeping)
        self._state.due_changed = True
        self._buffer.fetcher.wake()
        if waiting := [seq for seq, suspension in found if suspension.waits]:
            link.run(wake_waiting(waiting))
        self._state.figures.add(suspended=sum(not self._lost(job, settled) for _, job, *_ in entries))

    def _lost(self, job: LeasedJob, settled: Settled) -> bool:
        outcome = settled.outcomes[job.seq]
        if outcome is Outcome.OK:
            return False
        self._state.figures.add(lost=1)
        _log_lost(job, outcome)
        return True


def _log_failure(level: int, message: str, job: LeasedJob, failure: Failure, control: JobControl | None) -> None:
    error = None if control is None else control.error
    JOBS.log(
        level,
        message,
        exc_info=None if error is None else trace_of(error),
        extra=about(job, delivery=job.deliveries, error=f"{failure.type}: {failure.message}"),
    )


def _run_facts(control: JobControl | None) -> tuple[int | None, int | None]:
    return (None, None) if control is None else (control.ran_ms, control.result_ttl_ms)


def _log_lost(job: LeasedJob, why: str) -> None:
    after = "it was taken out" if why == Outcome.NOT_FOUND else "it will run again"
    logger.warning("Lease lost: what the job did does not count, %s", after, extra=about(job, why=why))
