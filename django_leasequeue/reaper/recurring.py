"""The duty of recurring tasks: it enqueues each tick once, as the rows say."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import psycopg

from ..conf.loglines import exc_info
from ..engine import ConnectionExecutor, codec
from ..engine.clock import span
from ..engine.dead.fingerprint import text_of
from ..engine.outage import Outage, passes
from ..engine.pool import connect
from ..engine.queues import routing
from ..engine.rows import number_of
from ..exceptions import InvalidOption
from ..models.recurring import MAX_JITTER, Schedule, is_tick, newest, parse
from .declarations import PAGE, home_of
from .duty import DutyRun, HostCode, HostCodeError, NotReturned
from .leader import NotLeading, Term
from .ticks import DueTask, ElsewhereTask, Tick, cut, enqueue_elsewhere, job_of, skip, take_ticks

logger = logging.getLogger("django_leasequeue.reaper.recurring")

#: Seconds between checks of which database each task belongs to, and before a retry of an absent one.
HOMES = 30.0
#: The longest default grace: a tick is skipped when it is later than its interval or this.
GRACE = timedelta(hours=1)
#: Time until an invalid row is read again (at once if it changes).
AGAIN = timedelta(minutes=5)
#: Ticks of one transaction.
BATCH = 100
#: Columns of a task that moves to another database.
_CARRIED = (
    "service", "name", "schedule", "timezone", "task", "args", "kwargs", "backend", "queue_name", "priority", "grace",
    "until", "times", "phase", "jitter", "expires", "runs", "enabled", "paused", "from_settings", "template",
    "created_at", "last_tick_at", "next_tick_at",
)  # fmt: skip


class _Line(NamedTuple):
    """A recurring task as the duty reads it."""

    now: datetime
    id: int
    name: str
    schedule: str
    timezone: str
    next_tick_at: datetime | None
    last_tick_at: datetime | None
    grace: int | None
    until: datetime | None
    phase: int
    jitter: int
    task: str
    args_json: str
    kwargs_json: str
    backend: str
    queue_name: str
    priority: int | None
    expires: int | None
    job_json: str | None
    enabled: bool

    def home(self, otherwise: str) -> str:
        """Return the alias of its queue; ``otherwise``: unknown."""
        job = None if self.job_json is None else codec.loads(self.job_json)
        return home_of(self.task, self.backend, self.queue_name, otherwise=otherwise, job=job)

    @property
    def due(self) -> DueTask:
        call = self.task, self.args_json, self.kwargs_json, self.backend, self.queue_name, self.priority
        return DueTask(*call, self.expires, self.job_json)

    def delay(self, tick: datetime) -> int:
        """Return the delay of a run in ms: the same in every process."""
        return crc32(f"{self.name} {tick.isoformat()}".encode()) % (min(self.jitter, MAX_JITTER) * 1_000 + 1)


class RecurringDuty:
    """Enqueues every tick once, with any number of reapers; of missed ticks it enqueues only the newest.

    The reaper of a database has the tasks of its queues. A task that belongs to another database (it was made here, or
    its queue has moved) moves there, with its last and next tick.
    """

    def __init__(self) -> None:
        #: The term of the last complete scan, and when it ended (monotonic); the last row of an unfinished scan.
        self._term: Term | bool | None = False
        self._scanned_at = 0.0
        self._after = 0
        #: Due ticks; tasks whose last tick failed, which get a transaction of their own.
        self._ticks: list[Tick] = []
        self._bad: set[int] = set()
        #: Calls of the host's code, whether the duty waits for one, and the tasks that other backends enqueue by it.
        self._code = HostCode()
        self._waits = False
        self._elsewhere: dict[int, ElsewhereTask] = {}
        #: Errors that are in the log already.
        self._logged: set[tuple[int, str]] = set()
        #: Unreachable databases, and when to try them again.
        self._absent: dict[str, float] = {}
        self._outage = Outage(
            logger,
            "Recurring tasks cannot move to the database of their queue, and are not enqueued meanwhile",
            "Recurring tasks move to the database of their queue again",
        )

    def __call__(self, duty_run: DutyRun) -> bool:
        if duty_run.alias not in routing.aliases():
            return False
        self._ticks.clear()
        self._waits = False
        for task in list(self._elsewhere.values()):
            self._enqueue_elsewhere(duty_run, task)
        lines = [_Line._make(row) for row in duty_run.fetch("recurring_due", {"size": PAGE})]
        moved = False
        for line in lines:
            if duty_run.over:
                return True
            moved |= self._process(duty_run, line)
        self._enqueue(duty_run)
        if self._waits or (moved and len(lines) >= PAGE):
            return True
        spread = len(routing.aliases()) > 1 and time.monotonic() - self._scanned_at >= HOMES
        return self._scan(duty_run) if spread or self._after or self._term != duty_run.term else False

    def _scan(self, duty_run: DutyRun) -> bool:
        """Check the database and the next tick of every row; return whether there are more."""
        while rows := duty_run.fetch("recurring_list", {"after": self._after, "size": PAGE}):
            for line in map(_Line._make, rows):
                if duty_run.over:
                    return True
                self._process(duty_run, line)
                self._after = line.id
            self._enqueue(duty_run)
        self._term, self._scanned_at, self._after = duty_run.term, time.monotonic(), 0
        return False

    def _process(self, duty_run: DutyRun, line: _Line) -> bool:
        """Enqueue a task's tick, plan the next one, or move the task; return whether there was anything to do."""
        try:
            home = self._home(duty_run, line)
            if home != duty_run.alias:
                return self._move(duty_run, line, home)
            return line.enabled and self._act(duty_run, line, parse(line.schedule, line.timezone, line.phase))
        except InvalidOption as error:
            if (line.id, str(error)) not in self._logged:
                self._logged.add((line.id, str(error)))
                logger.error("Recurring task %s does not run: %s", line.name, error)
            duty_run.fetch("recurring_note", _noted(line.id, error=str(error), again_at=line.now + AGAIN))
            return True

    def _home(self, duty_run: DutyRun, line: _Line) -> str:
        find = partial(line.home, duty_run.alias)
        if line.job_json is not None or len(routing.aliases()) == 1:
            return find()
        try:
            home: str = self._code.ask((line.id, "home", line.due), find)  # it imports the task
        except HostCodeError:
            return duty_run.alias
        return home

    def _move(self, duty_run: DutyRun, line: _Line, home: str) -> bool:
        if time.monotonic() < self._absent.get(home, 0.0):
            return False
        try:
            # Committed there first: between the two commits both databases have the row; the one here never ticks.
            with connect(home, patience=5, timeout=2) as there, duty_run.transaction():
                for row in duty_run.fetch("recurring_release", {"id": line.id}):
                    values = dict(zip(_CARRIED, row, strict=True))
                    if not ConnectionExecutor(there).fetch("recurring_adopt", values):
                        raise InvalidOption(
                            f"its queue is in the database {home!r}, which has another recurring task of that name."
                            " Rename or delete one of them."
                        )
        except psycopg.Error as error:
            if not passes(error) or duty_run.connection.closed:
                raise
            self._absent[home] = time.monotonic() + HOMES
            self._outage.begins(home, error)
            return False
        self._outage.ends(home)
        logger.info("Recurring task %s: moved to the database %s", line.name, home)
        return True

    def _act(self, duty_run: DutyRun, line: _Line, schedule: Schedule) -> bool:
        due, now = line.next_tick_at, line.now
        coming = schedule.next(now)
        following = None if line.until is not None and coming > line.until else coming
        if due is None or due > now or not is_tick(schedule, due):
            if due is not None and following == due:
                return False
            duty_run.fetch("recurring_plan", {"id": line.id, "before": due, "next_tick_at": following})
            return True
        at = newest(schedule, due, now if line.until is None else min(now, line.until))
        tick = Tick(line.id, line.name, at, following, delay=line.delay(at))
        grace = min(schedule.next(tick.at) - tick.at, GRACE) if line.grace is None else timedelta(seconds=line.grace)
        if now - tick.at > grace:
            late = f"it was {span(now - tick.at)} late, and its grace is {span(grace)}."
            why = f"The tick of {tick.at.isoformat()} was skipped: {late}"
            logger.warning("Recurring task %s: %s", line.name, why)
            skip(duty_run.alias, tick, why, duty_run.fence)
            return True
        try:
            if line.id in self._elsewhere:
                raise NotReturned("Its backend has not returned since the tick before.", late=True)
            job = None if line.job_json else self._code.ask((line.id, line.due), partial(job_of, line.due))
        except HostCodeError as error:
            if isinstance(error, NotReturned) and not error.late:
                self._waits = True
                return False
            self._fail(duty_run, tick, error)
            return True
        self._ticks.append(tick._replace(job=job))
        if len(self._ticks) >= BATCH:
            self._enqueue(duty_run)
        return True

    def _enqueue(self, duty_run: DutyRun) -> None:
        """Enqueue the due ticks together; those that fail, or failed last time, alone."""
        ticks, self._ticks = self._ticks, []
        together = [tick for tick in ticks if tick.task_id not in self._bad]
        alone = [tick for tick in ticks if tick.task_id in self._bad]
        try:
            self._take(duty_run, together)
        except Exception as error:
            if _passes(error):
                raise
            alone += together  # one of them fails: the others must not fail with it
        for tick in alone:
            if duty_run.over:
                return
            try:
                self._take(duty_run, [tick])
                self._bad.discard(tick.task_id)
            except Exception as error:
                if _passes(error):
                    raise
                self._fail(duty_run, tick, error)

    def _take(self, duty_run: DutyRun, ticks: Sequence[Tick]) -> None:
        if not ticks:
            return
        taken, elsewhere = take_ticks(duty_run.alias, ticks, duty_run.fence)
        for tick in taken:
            logger.info("Recurring task %s: enqueued the tick of %s", tick.name, tick.at.isoformat())
        for task in elsewhere:
            self._elsewhere[task.task_id] = task
            self._enqueue_elsewhere(duty_run, task)

    def _enqueue_elsewhere(self, duty_run: DutyRun, task: ElsewhereTask) -> None:
        """Enqueue a task by its own backend; one that does not answer is asked again at the next duty_run."""
        seq, failure = None, ""
        try:
            seq = number_of(self._code.ask(task, partial(enqueue_elsewhere, task.due, task.delay)))
        except NotReturned as error:
            if not error.late:
                self._waits = True
            elif task.task_id not in self._bad:
                self._bad.add(task.task_id)
                duty_run.fetch("recurring_note", _noted(task.task_id, error=str(error)))
            return
        except HostCodeError as error:
            logger.exception("Recurring task %s could not be enqueued by its backend", task.name)
            failure = str(error)
        del self._elsewhere[task.task_id]
        self._bad.discard(task.task_id)
        duty_run.fetch("recurring_note", _noted(task.task_id, seq=seq, error=failure))

    def _fail(self, duty_run: DutyRun, tick: Tick, error: Exception) -> None:
        """Skip a tick: a retry would fail again."""
        what = "Recurring task %s could not be enqueued; its tick of %s is skipped"
        logger.error(what, tick.name, tick.at, exc_info=exc_info(error))
        self._bad.add(tick.task_id)
        failure = str(error) if isinstance(error, HostCodeError) else f"{type(error).__name__}: {text_of(error)}"
        skip(duty_run.alias, tick, failure, duty_run.fence)


def _passes(error: Exception) -> bool:
    return isinstance(error, NotLeading) or passes(error)


def _noted(
    task_id: int, *, seq: int | None = None, error: str = "", again_at: datetime | None = None
) -> dict[str, Any]:
    return {"id": task_id, "seq": seq, "error": cut(error), "again_at": again_at}
