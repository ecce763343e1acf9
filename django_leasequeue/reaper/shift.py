"""A shift: one thread that runs the duties of a leader, one at a time, on its own connection."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from django.db import close_old_connections, connections
from psycopg.pq import TransactionStatus

from ..conf import process
from ..conf.loglines import exc_info
from ..engine import ConnectionExecutor, clock, pool
from ..engine.outage import LAST_RETRY, Outage, passes, read_only
from ..exceptions import LeaseQueueError
from .duty import Duty, DutyRun, OutOfTime
from .leader import NotLeading, Term

logger = logging.getLogger("django_leasequeue.reaper")

#: Seconds after which a server that does not answer is given up (it cancels a statement itself after ten minutes).
SILENCE = 660.0
#: The longest pause, in seconds, after a failed duty.
LONGEST_PENALTY = 60.0
#: A long duty has longer pauses: this many times its duration.
REST = 1.0
#: From this interval on (seconds), duties first run at a random later time: other processes start together with a
#: leader, and the database plans every statement for the first time.
UNHURRIED = 5.0
#: The latest such first run, in seconds.
SPREAD = 10.0


class Shift:
    """Runs duties while ``leads()``: in a thread from ``start`` on, until ``end`` or until it has ``failed``.

    A run that does not return keeps its thread: the leader begins another shift for the other duties. ``wake`` is
    called when the thread has failed.
    """

    def __init__(
        self,
        duties: Sequence[Duty],
        using: str,
        term: Term,
        leads: Callable[[], bool],
        outage: Outage,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._duties = duties
        self._using = using
        self._term = term
        self._may_write = leads
        self._outage = outage
        self._wake = wake
        self._connection: psycopg.Connection[Any] | None = None
        self._ended = threading.Event()
        self._run: DutyRun | None = None
        self._duty: Duty | None = None
        self._thread: threading.Thread | None = None
        #: The error that ended it.
        self.failed: BaseException | None = None

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """Its connection, opened on first use."""
        if self._connection is None:
            connection = self._connection = pool.connect(self._using)
            connection.patience = SILENCE
            if pool.prepares(self._using):  # behind a pooler the session is shared
                ConnectionExecutor(connection).fetch("reaper_session", {})
        return self._connection

    def start(self, *, unhurried: bool) -> None:
        """Begin in a thread; ``unhurried``: less urgent duties begin a little later."""
        now = clock.elapsing()
        for duty in self._duties if unhurried else ():
            duty.succeeded_at = time.monotonic()
            if duty.interval >= UNHURRIED:
                duty.next_at = max(duty.next_at, now + random.uniform(0.2, 1) * SPREAD)
        name = f"leasequeue-duties-{self._using}"
        self._thread = threading.Thread(target=self._body, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ask it to end, before its next statement."""
        self._ended.set()
        if (run := self._run) is not None:
            run.end()

    def join(self, timeout: float) -> bool:
        """Wait for its thread; return whether it has ended. Without a thread close its connection."""
        if self._thread is None:
            self._close()
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """Cancel the current statement, from another thread."""
        if (connection := self._connection) is not None:
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=2)

    @property
    def hangs(self) -> Duty | None:
        """The duty whose run has not returned in time."""
        duty = self._duty
        since = None if duty is None else duty.running_since
        return duty if since is not None and duty and time.monotonic() - since > duty.deadline else None

    def _body(self) -> None:
        process.own_thread()
        try:
            while not self._ended.is_set():
                self.tick()
                close_old_connections()
                following = min((duty.next_at for duty in self._free()), default=clock.elapsing() + 1)
                self._ended.wait(max(0.0, following - clock.elapsing()))
        except BaseException as error:  # noqa: BLE001  (the leader raises it)
            if not self._ended.is_set():
                self.failed = error
                self._wake()
        finally:
            self._close()
            connections.close_all()

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()

    def _free(self) -> list[Duty]:
        return [duty for duty in self._duties if duty.running_since is None]

    def tick(self, now: float | None = None) -> list[str]:
        """Run every due duty once, the longest waiting first; return the names of those that succeeded."""
        now = clock.elapsing() if now is None else now
        done = []
        for duty in sorted(self._free(), key=lambda duty: duty.next_at):
            if duty.next_at > now or self._ended.is_set():
                break
            if self._run_duty(duty, now):
                done.append(duty.name)
        return done

    def _run_duty(self, duty: Duty, now: float) -> bool:
        connection = self.connection
        began = duty.running_since = time.monotonic()
        self._duty = duty
        try:
            run = self._run = DutyRun(
                connection, self._using, term=self._term, leads=self._may_write, fenced=duty.fenced
            )
            more = duty.work(run)
        except OutOfTime:
            more = True
        except BaseException as error:  # the host's code may raise SystemExit; no error of a duty ends the others
            if isinstance(error, NotLeading) or (isinstance(error, KeyboardInterrupt) and self._thread is None):
                raise
            self._note(duty, error, connection, now)
            self._drop_open()
            return False
        finally:
            duty.running_since = self._duty = self._run = None
        if left := self._drop_open():
            self._note(
                duty, LeaseQueueError(f"It left a transaction on {left!r}, which was rolled back."), connection, now
            )
            return False
        took = time.monotonic() - began
        duty.failures, duty.error, duty.denied, duty.succeeded_at = 0, "", None, time.monotonic()
        self._outage.ends(duty.name)
        duty.next_at = now if more else now + max(duty.interval, REST * took)
        return True

    def _drop_open(self) -> str | None:
        """Drop Django's connections of this thread with a transaction that a duty has left open; return an alias."""
        if self._thread is None:  # the caller's are its own
            return None
        left = None
        for wrapper in connections.all(initialized_only=True):
            raw = wrapper.connection
            status = None if raw is None else raw.pgconn.transaction_status
            if wrapper.in_atomic_block or status not in (None, TransactionStatus.IDLE, TransactionStatus.UNKNOWN):
                left = wrapper.alias
                if raw is not None:
                    raw.close()
                del connections[left]
        return left

    def _note(self, duty: Duty, error: BaseException, connection: psycopg.Connection[Any], now: float) -> None:
        """Note a failed run; raise an error that ends the shift."""
        # A read-only server may be the wrong one by now: only a new connection shows it.
        if connection.closed or connection.broken or (read_only(error) and isinstance(error, psycopg.Error)):
            raise error
        if connection.info.transaction_status != TransactionStatus.IDLE:
            connection.rollback()
        if self._ended.is_set() and isinstance(error, psycopg.errors.QueryCanceled):
            return
        before = duty.error
        duty.note(error)
        if passes(error):
            duty.next_at = now + max(duty.interval, LAST_RETRY)
            self._outage.begins(duty.name, error)
            if not isinstance(error, psycopg.Error) and not connections[self._using].in_atomic_block:
                connections[self._using].close()  # as above, for a connection of Django that a duty used
            return
        penalty = min(duty.interval * 2**duty.failures, max(LONGEST_PENALTY, duty.interval))
        duty.next_at = now + penalty
        if duty.denied is not None:
            level = logging.WARNING if duty.error != before else logging.DEBUG
            what = "The role of this reaper may not do its duty %s (%s): docs/reference/grants.md says what it needs"
            logger.log(level, what, duty.name, duty.denied, extra={"duty": duty.name})
            return
        what = "Duty %s of the reaper failed; its next run is in %.1f s"
        logger.error(what, duty.name, penalty, extra={"duty": duty.name}, exc_info=exc_info(error))
