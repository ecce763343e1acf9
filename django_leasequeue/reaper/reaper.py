"""The reaper: what a duty is, and the loop that leads or waits to lead, and does the duties while it leads."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, connections

from .. import conf
from ..engine import ConnectionExecutor, clock
from ..engine.operation import Rows
from ..engine.outage import FIRST_RETRY, LAST_RETRY, Outage, passes, psycopg_error, read_only
from ..notify.session import WakeUpPipe
from . import duties, tables
from .leader import Election
from .recurring import RecurringDuty

logger = logging.getLogger("django_leasequeue.reaper")

#: Seconds that one duty may take at a time; what is left is done when the others have had their turn.
BUDGET = 2.0
#: Seconds before a duty that failed has another turn, at most.
LONGEST_PENALTY = 60.0
#: A duty that takes long has longer pauses: this many times what it took.
REST = 1.0
#: Duties of this interval (seconds) and longer ones have their first turn later, at a random time: when a leader begins
#: its neighbours begin too, and the database has to plan all that is done for the first time.
UNHURRIED = 5.0
#: Seconds until that first turn, at most.
SPREAD = 10.0


class OutOfTime(Exception):
    """A duty has used up its turn; what it did so far is done."""


class Turn(ConnectionExecutor):
    """One turn of a duty: runs operations on the reaper's connection until the time is over.

    Every statement of an operation leaves the tables right by itself, so an operation can end between two statements:
    it goes on at the next turn. Attributes: ``connection`` (psycopg, autocommit) and ``alias`` (of the database).
    """

    def __init__(self, connection: psycopg.Connection[Any], alias: str, budget: float = BUDGET) -> None:
        super().__init__(connection)
        self.alias = alias
        self._end = time.monotonic() + budget

    def end(self) -> None:
        """End the turn before its next statement; may be called from another thread."""
        self._end = 0.0

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._end

    def fetch(self, name: str, params: Mapping[str, Any] | None = None) -> Rows:
        """Run one statement and return its rows; raise ``OutOfTime`` if the turn is over."""
        if self.over:
            raise OutOfTime
        return super().fetch(name, params or {})


#: Does a duty's work for one turn. Returns whether there is more to do at once.
Work = Callable[[Turn], "bool | None"]


@dataclass(slots=True)
class Duty:
    """A recurring piece of the reaper's work: its name (in logs and settings), its function, seconds between turns."""

    name: str
    work: Work
    interval: float
    #: When a reaper gives it the next turn, and how many turns have failed since the last good one.
    next_at: float = float("-inf")
    failures: int = 0


_registered: dict[str, Duty] = {}


def register(name: str, work: Work, interval: float) -> None:
    """Give every reaper of this process one more duty; call it in ``AppConfig.ready``.

    Args:
        name: unique; ``LEASEQUEUE["REAPER"]["INTERVALS"]`` may name it.
        work: called with a ``Turn``; returns ``True`` when there is more to do at once. What it raises is logged, and
            stops no other duty. It must bear being broken off between two statements.
        interval: seconds between two turns.

    Raises:
        ValueError: the name is taken by another duty, or the interval is not above 0.
    """
    if not interval > 0:
        raise ValueError(f"the interval of duty {name!r} must be above 0; it is {interval!r}.")
    if name in _registered and _registered[name].work is not work:
        raise ValueError(f"there is a duty {name!r} already.")
    _registered[name] = Duty(name, work, interval)


def registered() -> list[Duty]:
    """Return the duties that were added to the standard ones."""
    return list(_registered.values())


def standard_duties() -> list[Duty]:
    """Return the duties of a new reaper: some of them remember things, so no two reapers share them."""
    census = duties.Census()
    return [
        Duty("sweep", duties.sweep, 0.5),
        Duty("promote", duties.promote, 0.5),
        Duty("advance", duties.advance, 0.2),
        Duty("floors", duties.Floors(), 0.2),
        Duty("mend_floors", duties.mend_floors, 20.0),
        Duty("expire", duties.Expiry(), 1.0),
        Duty("recurring", RecurringDuty(), 1.0),
        Duty("operations", duties.operations, 0.5),
        Duty("results", duties.expire_results, 5.0),
        Duty("workflows", duties.expire_workflows, 30.0),
        Duty("samples", census.sample, 30.0),
        Duty("heads", duties.note_heads, 10.0),
        Duty("timeline", duties.note_timeline, 1.0),
        Duty("partitions", tables.keep_partitions, 60.0),
        Duty("summaries", tables.summarize, 60.0),
        Duty("vacuum", tables.Vacuum(), 2.0),
        Duty("sample_retention", duties.expire_samples, 300.0),
        Duty("workers", duties.expire_workers, 60.0),
        Duty("tidy", duties.tidy, 30.0),
        Duty("large", duties.LargeObjects(), 10.0),
        Duty("unique_keys", duties.UniqueKeys(), 30.0),
        Duty("job_steps", duties.JobSteps(), 30.0),
        Duty("missed_events", duties.MissedEvents(), 5.0),
        Duty("awaited_results", duties.awaited_results, 1.0),
        Duty("events", duties.forget_events, 60.0),
        Duty("moves", duties.end_moves, 5.0),
        Duty("orphans", census.clear_up, 3_600.0),
    ]


def _intervals(duties: Iterable[Duty]) -> dict[str, float | None]:
    names = {duty.name for duty in duties}
    for name in conf.settings.REAPER.INTERVALS:
        if name not in names:
            raise ImproperlyConfigured(
                f"LEASEQUEUE['REAPER']['INTERVALS'] names {name!r}, which is no duty of the reaper. There are"
                f" {', '.join(sorted(names))}."
            )
    return conf.settings.REAPER.INTERVALS


class Reaper:
    """Does the duties that no worker does: any number may run, one leads, a crash is taken over.

    ``start`` and ``stop`` run it in a thread; ``run`` runs it here until ``stop`` is called from elsewhere. ``duties``:
    instead of the standard and the registered ones. ImproperlyConfigured: ``LEASEQUEUE["REAPER"]`` is not right.
    """

    def __init__(self, using: str | None = None, *, duties: Iterable[Duty] | None = None) -> None:
        self.using = using or conf.settings.DATABASE
        known = [*standard_duties(), *registered()] if duties is None else list(duties)
        intervals = _intervals(known)
        self._duties = [
            Duty(duty.name, duty.work, interval)
            for duty in known
            if (interval := intervals.get(duty.name, duty.interval)) is not None
        ]
        self._wakeup = WakeUpPipe()
        self._election = Election(self.using, self._wakeup)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._turn: Turn | None = None
        away, back = "The reaper cannot work, and tries again", "The reaper works again"
        self._outage = Outage(logger, away, back, database=self.using)

    @staticmethod
    def check_options() -> None:
        _intervals([*standard_duties(), *registered()])

    @property
    def leading(self) -> bool:
        return self._election.leading

    def start(self) -> None:
        if self._thread is not None:
            raise RuntimeError("the reaper runs already.")
        self._stopping.clear()
        self._thread = threading.Thread(target=self._body, name=f"leasequeue-reaper-{self.using}", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> bool:
        """Stop after the statement that runs now; return whether it has stopped. Safe in a signal handler's thread."""
        self._stopping.set()
        if (turn := self._turn) is not None:
            turn.end()
        self._wakeup.wake()
        thread, self._thread = self._thread, None
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout / 5)
        if thread.is_alive():  # its statement takes too long
            self._election.cancel()
            thread.join(timeout * 4 / 5)
        return not thread.is_alive()

    def _body(self) -> None:
        try:
            self.run()
        finally:
            connections.close_all()

    def run(self) -> None:
        """Run until ``stop`` is called. Nothing that happens to the database or to a duty ends it."""
        retry, now = FIRST_RETRY, self._now()
        for duty in self._duties:
            if duty.interval >= UNHURRIED:
                duty.next_at = max(duty.next_at, now + random.uniform(0.2, 1) * SPREAD)
        try:
            while not self._stopping.is_set():
                try:
                    if self._election.lead():
                        self.tick()
                        close_old_connections()
                        now = self._now()
                        pause = max(0.0, min((duty.next_at for duty in self._duties), default=now + 1) - now)
                    else:
                        pause = conf.settings.REAPER.RETRY
                    retry = FIRST_RETRY
                    self._outage.ends(self)
                    if not self._stopping.is_set():
                        self._election.wait(pause)
                except Exception as error:
                    self._election.drop()
                    if psycopg_error(error) is not None:
                        self._outage.begins(self, error)
                    else:
                        logger.exception("The reaper failed, and begins anew", extra={"database": self.using})
                    self._stopping.wait(retry * random.uniform(0.5, 1))
                    retry = min(retry * 2, LAST_RETRY)
        finally:
            self._election.resign()

    def lead(self) -> bool:
        """Lead from now on unless another reaper does (for tests and for a single round)."""
        return self._election.lead()

    def resign(self) -> None:
        self._election.resign()

    @property
    def failing(self) -> list[str]:
        return [duty.name for duty in self._duties if duty.failures]

    def round(self) -> list[str]:
        """Give every duty turns until none has more to do (at most a thousand), while leading; return what was done."""
        done: dict[str, None] = {}
        now = self._now()
        for _ in range(1_000):
            names = self.tick(now)
            if not names:
                break
            done.update(dict.fromkeys(names))
        return list(done)

    def tick(self, now: float | None = None) -> list[str]:
        """Give every duty that is due one turn, the longest waiting first; return the names of those done."""
        now = self._now() if now is None else now
        done = []
        for duty in sorted(self._duties, key=lambda duty: duty.next_at):
            if duty.next_at > now or self._stopping.is_set():
                break
            if self._give_turn(duty, now):
                done.append(duty.name)
        return done

    def _give_turn(self, duty: Duty, now: float) -> bool:
        began = time.monotonic()
        connection = self._election.connection
        more: bool | None = False
        try:
            self._turn = Turn(connection, self.using)
            more = duty.work(self._turn)
        except OutOfTime:
            more = True
        except Exception as error:
            # A server that is read-only may be the wrong one by now: only a new connection tells.
            if connection.closed or connection.broken or (read_only(error) and isinstance(error, psycopg.Error)):
                raise
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                connection.rollback()
            if self._stopping.is_set() and isinstance(error, psycopg.errors.QueryCanceled):
                return False
            duty.failures += 1
            if passes(error):
                duty.next_at = now + max(duty.interval, LAST_RETRY)
                self._outage.begins(duty.name, error)
                if not isinstance(error, psycopg.Error) and not connections[self.using].in_atomic_block:
                    connections[self.using].close()  # the same for the one of Django that a duty used
                return False
            penalty = min(duty.interval * 2**duty.failures, max(LONGEST_PENALTY, duty.interval))
            duty.next_at = now + penalty
            what = "Duty %s of the reaper failed; its next turn is in %.1f s"
            logger.exception(what, duty.name, penalty, extra={"duty": duty.name})
            return False
        took = time.monotonic() - began
        duty.failures = 0
        self._outage.ends(duty.name)
        duty.next_at = now if more else now + max(duty.interval, REST * took)
        return True

    @staticmethod
    def _now() -> float:
        held = clock.current()
        return time.monotonic() if held is None else held.timestamp()
