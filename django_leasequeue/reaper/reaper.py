"""The reaper: its list of duties, and the loop that leads, or waits to lead, while a shift runs the duties."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from .. import conf
from ..conf import process
from ..engine import clock
from ..engine.outage import FIRST_RETRY, LAST_RETRY, Outage, psycopg_error
from ..notify.session import WakeUpPipe
from . import duties, tables
from .duty import Duty, Work
from .leader import BEAT, Election, NotLeading
from .recurring import RecurringDuty
from .shift import Shift

logger = logging.getLogger("django_leasequeue.reaper")

#: Seconds that the current duty gets to end before another reaper may lead.
LAST_RUN = 1.0

_registered: dict[str, Duty] = {}


def register(name: str, work: Work, interval: float) -> None:
    """Give every reaper of this process one more duty; call it in ``AppConfig.ready``.

    Args:
        name: unique; ``LEASEQUEUE["REAPER"]["INTERVALS"]`` may name it.
        work: called with a ``DutyRun``; returns ``True`` if more work waits. Its errors are logged, and
            stops no other duty. It may be stopped between two statements; its next run continues.
        interval: seconds between two runs.

    Raises:
        ValueError: the name is taken by another duty, or the interval is not above 0.
    """
    if not interval > 0:
        raise ValueError(f"interval must be above 0 for the duty {name!r}; it is {interval!r}.")
    if name in _registered and _registered[name].work is not work:
        raise ValueError(f"name must be unique; there is a duty {name!r} already.")
    _registered[name] = Duty(name, work, interval)


def registered() -> list[Duty]:
    """Return the duties of the host."""
    return list(_registered.values())


def standard_duties() -> list[Duty]:
    """Return the duties of a new reaper; some have state, so two reapers never share them."""
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
        Duty("results", duties.expire_results, 5.0, fenced=True),
        Duty("workflows", duties.expire_workflows, 30.0, fenced=True),
        Duty("samples", census.sample, 30.0),
        Duty("heads", duties.note_heads, 10.0),
        Duty("timeline", duties.note_timeline, 1.0),
        Duty("partitions", tables.keep_partitions, 60.0),
        Duty("summaries", tables.summarize, 60.0),
        Duty("vacuum", tables.Vacuum(), 2.0),
        Duty("sample_retention", duties.expire_samples, 300.0, fenced=True),
        Duty("workers", duties.expire_workers, 60.0, fenced=True),
        Duty("tidy", duties.tidy, 30.0, fenced=True),
        Duty("large", duties.LargeObjects(), 10.0, fenced=True),
        Duty("unique_keys", duties.UniqueKeys(), 30.0, fenced=True),
        Duty("job_steps", duties.JobSteps(), 30.0, fenced=True),
        Duty("missed_events", duties.MissedEvents(), 5.0),
        Duty("awaited_results", duties.awaited_results, 1.0),
        Duty("events", duties.forget_events, 60.0, fenced=True),
        Duty("moves", duties.end_moves, 5.0, fenced=True),
        Duty("orphans", census.clear_up, 60.0),
    ]


def _intervals(duties: Iterable[Duty]) -> dict[str, float | None]:
    names = {duty.name for duty in duties}
    for name in conf.settings.REAPER.INTERVALS:
        if name not in names:
            raise ImproperlyConfigured(
                f"LEASEQUEUE['REAPER']['INTERVALS'] takes the duties {', '.join(sorted(names))}; it has {name!r}."
            )
    return conf.settings.REAPER.INTERVALS


class Reaper:
    """Does the duties of a database: of any number of reapers one leads, and another takes over after a crash.

    ``start`` and ``stop`` run it in a thread; ``run`` runs it here until another thread calls ``stop``. ``duties``
    replaces the standard and the registered ones. ImproperlyConfigured: ``LEASEQUEUE["REAPER"]`` is invalid.

    It has two threads: this one leads and beats, however long a duty takes; the other one (``Shift``) runs the duties.
    """

    def __init__(self, using: str | None = None, *, duties: Iterable[Duty] | None = None) -> None:
        self.using = using or conf.settings.DATABASE
        known = [*standard_duties(), *registered()] if duties is None else list(duties)
        intervals = _intervals(known)
        self._duties = [
            Duty(duty.name, duty.work, interval, fenced=duty.fenced, deadline=duty.deadline)
            for duty in known
            if (interval := intervals.get(duty.name, duty.interval)) is not None
        ]
        self._wakeup = WakeUpPipe()
        self._election = Election(self.using, self._wakeup)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._shift: Shift | None = None
        away, back = "The reaper cannot work, and tries again", "The reaper works again"
        self._outage = Outage(logger, away, back, database=self.using)

    @staticmethod
    def check_options() -> None:
        _intervals([*standard_duties(), *registered()])

    @property
    def leading(self) -> bool:
        return self._election.leading

    @property
    def failing(self) -> list[str]:
        return [duty.name for duty in self._duties if duty.failures]

    def report(self) -> tuple[bool, dict[str, Any]]:
        """Return whether its thread lives and, while it leads, no duty is late; and the details."""
        late = [duty.as_dict() for duty in self._duties if duty.late] if self.leading and self._shift else []
        alive = self._thread is None or self._thread.is_alive()
        return alive and not late, {"leads": self.leading, "late": {each["name"]: each["error"] for each in late}}

    def start(self) -> None:
        if self._thread is not None:
            raise RuntimeError("the reaper runs already.")
        self._stopping.clear()
        self._thread = threading.Thread(target=self._body, name=f"leasequeue-reaper-{self.using}", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> bool:
        """Stop after the current statement; return whether it has stopped. Safe in a signal handler's thread."""
        self._stopping.set()
        if (shift := self._shift) is not None:
            shift.end()
        self._wakeup.wake()
        thread, self._thread = self._thread, None
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout / 5)
        if shift is not None and not shift.join(timeout / 5):
            shift.cancel()  # its statement takes too long
            shift.join(timeout / 5)
        thread.join(timeout / 5)
        return not thread.is_alive() and (shift is None or shift.join(0))

    def _body(self) -> None:
        process.own_thread()
        try:
            self.run()
        finally:
            connections.close_all()

    def run(self) -> None:
        """Run until ``stop``. No error of the database or of a duty ends it."""
        retry = FIRST_RETRY
        try:
            while not self._stopping.is_set():
                try:
                    pause = self._lead_and_watch()
                    retry = FIRST_RETRY
                    self._outage.ends(self)
                    if not self._stopping.is_set():
                        self._election.wait(pause)
                except NotLeading as error:
                    logger.warning("%s", error, extra={"database": self.using})
                    self._end_shift()
                except Exception as error:
                    self._end_shift()
                    self._election.resign()
                    if psycopg_error(error) is not None:
                        self._outage.begins(self, error)
                    else:
                        logger.exception("The reaper failed and starts again", extra={"database": self.using})
                    self._stopping.wait(retry * random.uniform(0.5, 1))
                    retry = min(retry * 2, LAST_RETRY)
        finally:
            self._end_shift()
            self._election.resign()

    def _lead_and_watch(self) -> float:
        """Lead if there is no leader, and keep a shift running; return the seconds until the next call."""
        election = self._election
        if not election.leading and not election.lead():
            return election.pause
        if election.due:
            election.beat([duty.as_dict() for duty in self._duties])
        shift = self._shift
        if shift is None:
            self._begin_shift(unhurried=True)
        elif shift.failed is not None:
            raise shift.failed if isinstance(shift.failed, Exception) else RuntimeError(repr(shift.failed))
        elif (duty := shift.hangs) is not None:
            what = "Duty %s of the reaper does not return: the others continue without it"
            logger.error(what, duty.name, extra={"duty": duty.name})
            duty.failures += 1
            shift.end()
            self._begin_shift(unhurried=False)
        return BEAT

    def _begin_shift(self, *, unhurried: bool) -> None:
        self._shift = self._make_shift(lambda: self._election.valid)
        self._shift.start(unhurried=unhurried)

    def _make_shift(self, leads: Callable[[], bool]) -> Shift:
        assert self._election.term is not None
        return Shift(self._duties, self.using, self._election.term, leads, self._outage, self._wakeup.wake)

    def _end_shift(self) -> None:
        shift, self._shift = self._shift, None
        if shift is not None:
            shift.end()
            shift.join(LAST_RUN)

    def lead(self) -> bool:
        """Lead from now on unless another reaper does: for a single ``round``, which beats by itself."""
        if self._election.lead() and self._shift is None:
            for duty in self._duties:
                duty.succeeded_at = time.monotonic()
            self._shift = self._make_shift(self._keep_leading)
        return self._election.leading

    def _keep_leading(self) -> bool:
        if self._election.due:
            self._election.beat([duty.as_dict() for duty in self._duties])
        return self._election.valid

    def wait_to_lead(self) -> bool:
        """Lead, or return False if another reaper does; wait until a dead leader's term is over."""
        beat = None
        while not self.lead():
            if beat not in (None, self._election.seen):
                return False
            beat = self._election.seen
            self._election.wait(min(self._election.pause, BEAT))
        return True

    def resign(self) -> None:
        self._end_shift()
        self._election.resign()

    def round(self) -> list[str]:
        """Run due duties until none has more to do (a thousand times at most); return the names of those that ran."""
        done: dict[str, None] = {}
        now = clock.elapsing()
        for _ in range(1_000):
            names = self.tick(now)
            if not names:
                break
            done.update(dict.fromkeys(names))
        return list(done)

    def tick(self, now: float | None = None) -> list[str]:
        """Run every due duty once, the longest waiting first; return the names of those that succeeded."""
        assert self._shift is not None
        return self._shift.tick(now)
