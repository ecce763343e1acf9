"""The acknowledger: writes how runs ended to the database, many with one statement."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial

import psycopg

from ..conf.loglines import JOBS, about, contained
from ..engine import Ending, Failure, LeasedJob, Outcome, Release, Settled, finish, release
from ..engine.jobs.results import Progress, progress
from ..engine.jobs.steps import wake_waiting
from ..exceptions import LeaseQueueError
from ..notify.alarms import Alarm
from .control import EndingName, JobControl
from .edge import connected_threads, tidy_connections
from .held import FLOW, SUSPECT, take_from
from .link import DatabaseLink
from .run import COMPLETED, FAILED, RETRY, STOPPED, SUSPENDED, UNSTARTED, Entry, plain_failure, trace_of
from .state import WorkerState

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds between polls of the lead while the helper settles every claim that has ended jobs.
LEAD_POLL = 0.01
#: How often the lead goes on after an error that nothing foresees: each time the entries of one statement are lost.
MOST_BREAKS = 100


class Acknowledger:
    """Settles the entries of ``state.ended``. ``run`` is the body of a thread.

    While threads have more jobs it collects entries for a few milliseconds, or until they fill a statement. With no job
    left to start it settles at once: a caller may wait for the result.
    """

    def __init__(self, state: WorkerState) -> None:
        self.done, self.wakeup = state.ended, state.acknowledger
        self._state = state
        self._buffer = state.buffer
        # Under load a helper settles, too: one computes while the other waits for the disk.
        self._links = [DatabaseLink(state.options.database, "ack", state.node, state.outage) for _ in range(2)]
        self._helper = Alarm()
        #: By session: the claims with limits or workflows that it settles now.
        self._settling_claims: dict[DatabaseLink, set[int]] = {link: set() for link in self._links}
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
        # ``attend`` reports an error of this thread before the helper is joined. A broken worker still gives back,
        # unless that is what breaks.
        for _ in range(MOST_BREAKS):
            if self._state.attend("acknowledger", partial(self._lead, self._links[0])):
                break
        self._closing = True
        self._helper.wake()
        helper.join()

    def _lead(self, link: DatabaseLink) -> None:
        with closing(link):
            while self._gather():
                if not self._settle_some(link):
                    self.wakeup.wait(LEAD_POLL)

    def _help(self, link: DatabaseLink) -> None:
        with closing(link):
            while not self._closing:
                self._helper.wait()
                while len(self.done) >= self._state.options.ack_batch and self._settle_some(link):
                    pass

    def _gather(self) -> bool:
        """Wait until it is time for a statement; return False at the end."""
        while not self.done:
            if self._closing:
                return False
            self.wakeup.doze(None, lambda: self.done or self._closing)
        options = self._state.options
        if options.ack_ms and len(self.done) < options.ack_batch and self._buffer.jobs:
            # A thread without a next job ends this wait.
            self.wakeup.wait(options.ack_ms / 1_000)
        return True

    def _settle_some(self, link: DatabaseLink) -> bool:
        """Settle the entries of one statement, and wake the helper if as many are left.

        Return False if the other session settles the claims of all of them.
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
            self._settle_bisecting(ended, self._finish, link)
            if len(ended) < len(entries):
                for kinds, settle in (
                    ((RETRY, STOPPED), self._release),
                    ((UNSTARTED,), self._return),
                    ((SUSPENDED,), self._suspend),
                ):
                    self._settle_bisecting([entry for entry in entries if entry[0] in kinds], settle, link)
        finally:
            self._state.settle(-count)
            limited, self._settling_claims[link] = bool(self._settling_claims[link]), set()
            # Receivers of signals may have used Django's connection: as after a request.
            if threading.get_ident() in connected_threads:
                tidy_connections()
        fetcher = self._buffer.fetcher
        # The end of a job under a limit makes the next one ready: this worker knows it first.
        if limited and link is not self._links[0]:
            self.wakeup.wake()  # the lead may wait for these claims
        ending = options.burst or options.max_jobs > 0 or self._state.draining.is_set()
        if limited or fetcher.sleeping or (ending and self._state.empty):
            fetcher.wake()
        return bool(entries)

    def _take(self, count: int, link: DatabaseLink) -> list[Entry]:
        """Take out the entries to settle now, and drop those of jobs that were lost or given back meanwhile.

        Entries of a claim with limits that the other session settles stay: a second statement on that claim would wait
        for the first, which looks for the next jobs of their keys.
        """
        held = self._state.held
        entries: list[Entry] = []
        left: list[Entry] = []
        with self._taking:
            busy = set[int]().union(*self._settling_claims.values())
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
                    if entry[2] is None or entry[2].reason != "cancelled":  # the keeper has logged those
                        _log_lost(entry[1], "the lease was gone")
            self.done.extendleft(reversed(left))
            self._settling_claims[link] = {entry[1].token for entry in entries if entry[1].flags & FLOW}
        return entries

    def _store_progress(self, entries: list[Entry], link: DatabaseLink) -> None:
        """Store the progress since leases were renewed last: the end of a job is the last chance."""
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

    def _settle_bisecting(
        self, entries: list[Entry], settle: Callable[[list[Entry], DatabaseLink], None], link: DatabaseLink
    ) -> None:
        """Settle entries; if the database refuses their content, halve them until the refused one is found."""
        if not entries:
            return
        try:
            settle(entries, link)
        except (psycopg.Error, LeaseQueueError) as error:
            if len(entries) > 1:
                middle = len(entries) // 2
                self._settle_bisecting(entries[:middle], settle, link)
                self._settle_bisecting(entries[middle:], settle, link)
            else:
                self._refused(entries[0], error, link)

    def _refused(self, entry: Entry, error: Exception, link: DatabaseLink) -> None:
        kind, job, control, *_ = entry
        if kind in (COMPLETED, FAILED):
            logger.warning("A job is tried again: its result was refused", extra=about(job, error=str(error)))
            if control is not None:
                control.error = error
            self._settle_bisecting([(RETRY, job, control, plain_failure(error), None)], self._release, link)
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
        outcomes, hears = settled.outcomes, self._state.hears("completed")
        for kind, job, control, value, _ in entries:
            outcome = outcomes.get(job.seq, Outcome.OK)
            # The answer was lost with the connection, not the commit: the job is finished and gone.
            if outcome is not Outcome.OK and not (again and outcome is Outcome.NOT_FOUND):
                lost += 1
                _log_lost(job, outcome)
            elif kind == COMPLETED:
                completed += 1
                if hears or job.meta_json is not None:
                    self._notify_handler(job, "completed", value)
            else:
                failed += 1
                _log_failure(logging.ERROR, "Job failed for good", job, value, control)
                self._notify_handler(job, "failed", None, value)
        self._state.figures.add(completed=completed, failed=failed, lost=lost)

    def _give_back(
        self, entries: list[Entry], link: DatabaseLink, *, unstarted: bool = False, keeping: Sequence[int] | None = None
    ) -> Settled:
        """Release jobs; ``keeping``: they are suspended, and these keep the slots of their limits."""
        releases = []
        for kind, job, control, failure, delay in entries:
            ran_ms, ttl_ms = _run_facts(None if unstarted else control)
            suspect = _suspect(kind, job, control)
            releases.append(Release(job.seq, job.token, delay, failure, ran_ms, ttl_ms, suspect))
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
        if any(released.state == "delayed" for released in settled.released.values()):
            self._state.due_changed = True
            self._buffer.fetcher.wake()
        for kind, job, control, failure, _ in entries:
            released = settled.released.get(job.seq)
            if released is None:
                # The answer was lost with the connection, not the commit.
                if not again:
                    self._lost(job, settled)
                continue
            if kind == STOPPED:
                figures.add(returned=1)
                continue
            if released.state == "dead":
                figures.add(failed=1)
                _log_failure(logging.ERROR, "Job is dead after its last try", job, failure, control)
                self._notify_handler(job, "dead", None, failure, released.available_at)
            else:
                figures.add(retried=1)
                _log_failure(logging.WARNING, "Job failed and will be tried again", job, failure, control)
                self._notify_handler(job, "failing", None, failure, released.available_at)

    def _notify_handler(
        self,
        job: LeasedJob,
        ending: EndingName,
        result_json: str | None = None,
        failure: Failure | None = None,
        available_at: datetime | None = None,
    ) -> None:
        with contained(logger, "The method settled() of the handler raised", seq=job.seq):
            self._state.handler.settled(
                job, ending, result_json=result_json, failure=failure, available_at=available_at
            )

    def _return(self, entries: list[Entry], link: DatabaseLink) -> None:
        for _, job, control, *_ in entries:
            if control is not None:  # its handler has begun to prepare it
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
    with contained(logger, "The failure of a job cannot be logged", seq=job.seq):
        if level == logging.WARNING and isinstance(error, LeaseQueueError):
            message = getattr(error, "log_line", message)
        JOBS.log(
            level,
            message,
            exc_info=None if error is None else trace_of(error),
            extra=about(job, delivery=job.deliveries, error=f"{failure.type}: {failure.message}"),
        )


def _suspect(kind: int, job: LeasedJob, control: JobControl | None) -> bool:
    """Return whether a released job is a suspect: its process died, or it was one and has not run to its end."""
    if kind in (UNSTARTED, STOPPED):
        return bool(job.flags & SUSPECT)
    return control is not None and control.process_died


def _run_facts(control: JobControl | None) -> tuple[int | None, int | None]:
    return (None, None) if control is None else (control.ran_ms, control.result_ttl_ms)


def _log_lost(job: LeasedJob, why: str) -> None:
    after = "it was cancelled or removed" if why == Outcome.NOT_FOUND else "it will run again"
    logger.warning("Lease lost: the result of the job is dropped, %s", after, extra=about(job, why=why))
