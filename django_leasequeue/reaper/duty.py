"""A duty of the reaper: its function, its state, one run of it on a database, and its calls of the host's code."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from django.db import connections

from ..conf import process
from ..engine import ConnectionExecutor
from ..engine.dead.fingerprint import text_of
from ..engine.operation import Rows
from ..engine.outage import missing_right
from ..exceptions import LeaseQueueError
from .leader import NotLeading, Term

_IDLE = psycopg.pq.TransactionStatus.IDLE
#: Seconds of one run of a duty; the rest waits for its next run.
BUDGET = 2.0
#: Seconds after which the other duties continue without one that does not return.
DEADLINE = 8.0
#: A duty is late without a success for so many of its intervals, counted with at least so many seconds.
INTERVALS, SHORTEST = 3, 10.0
#: Characters that are kept of an error.
MAX_ERROR = 500


class OutOfTime(Exception):
    """A duty has used up its time; its work so far counts."""


@contextmanager
def by_owner(does: str) -> Iterator[None]:
    """Name the owner of the tables if the role lacks a right: PostgreSQL names only the first missing one."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise psycopg.errors.InsufficientPrivilege(f"only the owner of the tables {does}") from error


class DutyRun(ConnectionExecutor):
    """One run of a duty: runs operations on the reaper's connection until the time is over.

    Every statement leaves the tables consistent by itself, so an operation may stop between two statements and continue
    in the next run. Attributes: ``connection`` (psycopg, autocommit), ``alias`` (of the database) and
    ``term`` (of the leader; ``None`` outside of a reaper).
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        alias: str,
        budget: float = BUDGET,
        *,
        term: Term | None = None,
        leads: Callable[[], bool] = lambda: True,
        fenced: bool = False,
    ) -> None:
        super().__init__(connection)
        self.alias = alias
        self.term = term
        self._end = time.monotonic() + budget
        self._leads = leads
        self._fenced = fenced

    def end(self) -> None:
        """End the run before its next statement; from any thread."""
        self._end = 0.0

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._end

    def fetch(self, name: str, params: Mapping[str, Any] | None = None) -> Rows:
        """Run one statement and return its rows; ``OutOfTime``: the run is over; ``NotLeading``: the term is over."""
        if self.over:
            raise OutOfTime
        if not self._leads():
            raise NotLeading("This reaper does not lead any more.")
        if self._fenced and self.connection.info.transaction_status == _IDLE:
            with self.transaction():
                return super().fetch(name, params or {})
        return super().fetch(name, params or {})

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Return a transaction; that of a fenced duty commits only while the term lasts."""
        with super().transaction():
            if self._fenced:
                self.fence(ConnectionExecutor(self.connection))
            yield

    def fence(self, executor: Any, **limits: int) -> None:
        """Let the transaction that an executor has begun commit only while the term lasts."""
        if self.term is not None:
            self.term.fence(executor, **limits)


#: The function of a duty, for one run. Returns True if more work waits.
Work = Callable[[DutyRun], "bool | None"]


@dataclass(slots=True)
class Duty:
    """A recurring piece of the reaper's work: its name (in logs and settings), its function, seconds between runs."""

    name: str
    work: Work
    interval: float
    #: Whether its transactions are refused once another reaper leads. Other duties may run in two reapers at once:
    #: claims and other processes send the same statements.
    fenced: bool = field(default=False, kw_only=True)
    #: Seconds after which the other duties continue without it.
    deadline: float = field(default=DEADLINE, kw_only=True)
    #: When it runs next, and how many runs have failed since the last success.
    next_at: float = field(default=float("-inf"), kw_only=True)
    failures: int = field(default=0, kw_only=True)
    #: When it succeeded last, or its leader began, and the start of its current run (monotonic).
    succeeded_at: float = field(default=0.0, kw_only=True)
    running_since: float | None = field(default=None, kw_only=True)
    #: The last error; empty after a success.
    error: str = field(default="", kw_only=True)
    #: PostgreSQL's message, if this reaper's role lacks a right.
    denied: str | None = field(default=None, kw_only=True)

    def note(self, error: BaseException) -> None:
        """Note a failed run."""
        self.failures += 1
        self.error = f"{type(error).__name__}: {' '.join(text_of(error).split())}"[:MAX_ERROR]
        self.denied = missing_right(error)

    @property
    def late(self) -> bool:
        """Whether it has not succeeded for three intervals; a missing right does not count, it is logged."""
        return self.denied is None and time.monotonic() - self.succeeded_at > INTERVALS * max(self.interval, SHORTEST)

    def as_dict(self) -> dict[str, Any]:
        """Return its state for the row of the leader: seconds, and the last error."""
        now, since = time.monotonic(), self.running_since
        error = self.error
        if since is not None and now - since > self.deadline:
            error = f"It has not returned for {now - since:.0f} s."
        return {
            "name": self.name,
            "interval": self.interval,
            "succeeded": round(now - self.succeeded_at, 1),
            "failures": self.failures,
            "late": self.late,
            "error": error,
        }


#: Seconds for which a duty waits at each call of ``HostCode.ask``, and after which it waits no longer.
WAIT, PATIENCE = 0.2, 8.0
#: Concurrent calls of the host's code; seconds after which an unfetched result is dropped.
MOST_CALLS, FORGOTTEN = 20, 60.0


class HostCodeError(LeaseQueueError):
    """An error of the host's code, ``SystemExit`` included."""


class NotReturned(HostCodeError):
    """The host's code has not returned yet. ``late``: the duty no longer waits for it."""

    def __init__(self, message: str, *, late: bool) -> None:
        super().__init__(message)
        self.late = late


class HostCode:
    """Calls of the host's code by key, each in its own thread, since it may never return."""

    def __init__(self) -> None:
        self._calls: dict[Hashable, _Call] = {}

    def ask(self, key: Hashable, function: Callable[[], Any]) -> Any:
        """Return the function's value; ``HostCodeError``: it raised; ``NotReturned``: ask again with the key."""
        call = self._calls.get(key)
        if call is None:
            self._make_room()
            call = self._calls[key] = _Call(function)
        since = time.monotonic() - call.began
        if not call.returned.wait(WAIT if since < PATIENCE else 0):
            raise NotReturned(f"Its code has not returned for {since:.0f} s.", late=since >= PATIENCE)
        del self._calls[key]
        if call.error is not None:
            raise HostCodeError(f"{type(call.error).__name__}: {text_of(call.error)}") from call.error
        return call.value

    def _make_room(self) -> None:
        now = time.monotonic()
        for key, call in list(self._calls.items()):
            if call.returned.is_set() and now - call.began > FORGOTTEN:
                del self._calls[key]
        if len(self._calls) >= MOST_CALLS:
            raise NotReturned(
                f"It was not called, because the code of {MOST_CALLS} others has not returned.", late=True
            )


class _Call:
    """A call, with its value or error once it has ``returned``."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.began = time.monotonic()
        self.returned = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None
        self._function = function
        threading.Thread(target=self._run, name="leasequeue-host", daemon=True).start()

    def _run(self) -> None:
        process.own_thread()
        try:
            self.value = self._function()
        except BaseException as error:  # noqa: BLE001  (a module may raise SystemExit when it is imported)
            self.error = error
        finally:
            connections.close_all()
            self.returned.set()
