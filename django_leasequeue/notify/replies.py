"""Callers that wait for the end of jobs: they share one channel and one LISTEN connection in a process.

The transaction that ends a job notifies the channels of the callers that wait for it; the payload is
``<number>:<1 completed|2 failed|3 cancelled>:<key>``, or, to the channels of hubs, ``<number>:0:<time of the enqueue,
in µs>:<JSON>`` when it was completed with a small result. Jobs without a waiting caller send nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

from asgiref.sync import sync_to_async

from .. import engine
from ..conf import process
from ..engine import clock, pool
from ..engine.jobs import results
from ..engine.jobs.results import Reply
from ..engine.limits import MAX_BATCH
from ..engine.outage import away
from ..engine.store import is_reference
from ..exceptions import InvalidOption
from ..twins import Body, Either, either
from .alarms import FIRST_POLL, LAST_POLL, Alarm, FallbackPoll
from .listener import READY_TIMEOUT, Listener, Subscription, get_listener
from .session import reply_channel

T = TypeVar("T")

#: Seconds between polls of the jobs that callers wait for, while notifications arrive: a backstop.
BACKSTOP = 15.0

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class End(NamedTuple):
    """The end of a job as its notification says it; ``UNKNOWN_END`` without a notification."""

    #: "1" completed, "2" failed, "3" cancelled; "" unknown.
    state: str = ""
    #: The key of the job that ended; ``None`` unknown.
    key: str | None = None
    #: The result, if it was small enough for the notification.
    reply: Reply | None = None

    @classmethod
    def parse(cls, seq: int, payload: str) -> End:
        """Return the end that a payload, without its number, describes."""
        state, _, rest = payload.partition(":")
        if state != "0":
            return cls(state, rest)
        at, _, result = rest.partition(":")
        if is_reference(result):
            return cls("1")
        return cls("1", reply=Reply(seq, _EPOCH + timedelta(microseconds=int(at)), result or None, None))


UNKNOWN_END = End()


@dataclass(slots=True, eq=False)
class Ticket:
    """One caller's registration in the hub. It receives ends from ``open`` on, also of jobs it does not know yet."""

    _hub: ReplyHub
    alarm: Alarm
    _subscription: Subscription
    #: The hub's count of ends when it was opened.
    opened: int
    #: The job it waits for; ``None`` until ``bind``.
    seq: int | None = None
    ended: bool = False
    end: End = UNKNOWN_END
    #: Whether the end of its job will send a notification.
    notified: bool = True
    _fallback: FallbackPoll = field(default_factory=FallbackPoll)
    _polled_last: bool = False

    @property
    def live(self) -> bool:
        return self.notified and self._subscription.live

    def ready(self, timeout: float) -> Either:
        """Return the step that waits until notifications arrive, at most ``timeout`` seconds; until then it polls."""
        subscription = self._subscription
        return either(subscription.wait_ready, subscription.async_ready, min(READY_TIMEOUT, timeout))

    def bind(self, seq: int) -> None:
        """Wait for this job. If it has ended since the ticket was opened, ``ended`` is set at once."""
        hub = self._hub
        with hub._lock:
            self.seq = seq
            count, end = hub._heard.get(seq, (0, UNKNOWN_END))
            if count > self.opened:
                self.ended, self.end = True, end
            else:
                hub._tickets.setdefault(seq, set()).add(self)
            hub._leave_unbound(self)

    def again(self) -> None:
        """Wait for the next end: the job may have been brought back after its end."""
        with self._hub._lock:
            self.ended = False
            if self.seq is not None:
                self._hub._tickets.setdefault(self.seq, set()).add(self)

    def sleep(self, seconds: float) -> Either:
        """Return the step that sleeps until the ticket's alarm, at most ``seconds``."""
        return either(self.alarm.wait, self.alarm.wait, seconds)

    def until_ended(self, deadline: float) -> Body[bool]:
        """Wait until the job has ended; return False if it has not by ``deadline`` (monotonic), after a last poll.

        Without notifications (the connection is lost, or there is none) the caller polls, for all of the process.
        """
        while not self.ended:
            left = deadline - clock.monotonic()
            if left <= 0:
                if self._polled_last:
                    return False
                self._polled_last = True
                if self.seq is not None:
                    yield from self._hub._poll_jobs([self.seq])
                    return self.ended
                return True
            live = self.live and not self._hub._stale
            yield self.sleep(self._fallback.limit(min(left, BACKSTOP), live))
            if self.seq is None:  # its number is not known: the caller reads its state
                return True
            if not self.ended:
                yield from self._hub._poll(BACKSTOP / 2 if self.live else FIRST_POLL)
        return True

    def close(self) -> None:
        hub = self._hub
        with hub._lock:
            hub.waiting -= 1
            hub._leave_unbound(self)
            if self.seq is not None and (tickets := hub._tickets.get(self.seq)) is not None:
                tickets.discard(self)
                if not tickets:
                    del hub._tickets[self.seq]
            if not hub.waiting:
                self._subscription.close()
                hub._subscription = None
            elif hub._stale:  # this caller may have been the one that polls
                hub._wake_one()


class ReplyHub:
    """The callers of this process who wait for jobs of one database. Made by ``get_hub``."""

    def __init__(self, listener: Listener, channel: str) -> None:
        self.channel = channel
        self._listener = listener
        self._lock = threading.Lock()
        self._subscription: Subscription | None = None
        self._tickets: dict[int, set[Ticket]] = {}
        # Tickets without a job yet, oldest first, and the ends since the oldest of them was opened.
        self._unbound: dict[Ticket, None] = {}
        self._heard: dict[int, tuple[int, End]] = {}
        self._count = 0
        self.waiting = 0
        self._polled_at = 0.0
        self._stale = False

    def open(self, alarm: Alarm) -> Ticket:
        """Open a ticket; take its step ``ready`` before the job can end."""
        with self._lock:
            if self._subscription is None:
                self._subscription = self._listener.subscribe(self.channel, self._hear)
            ticket = Ticket(self, alarm, self._subscription, self._count)
            self._unbound[ticket] = None
            self.waiting += 1
        return ticket

    def _hear(self, payload: str | None) -> None:
        if payload is None:  # notifications may be missing: one caller polls for all
            with self._lock:
                self._stale = True
                self._wake_one()
            return
        number, _, rest = payload.partition(":")
        if number.isdigit():
            self._end([int(number)], End.parse(int(number), rest))

    def _end(self, seqs: list[int], end: End = UNKNOWN_END) -> None:
        with self._lock:
            found: list[Ticket] = []
            for seq in seqs:
                self._count += 1
                if self._unbound:
                    self._heard.pop(seq, None)
                    self._heard[seq] = (self._count, end)
                found.extend(self._tickets.pop(seq, ()))
            for ticket in found:
                ticket.ended, ticket.end = True, end
        for ticket in found:
            ticket.alarm.wake()

    def _wake_one(self) -> None:
        for ticket in next(iter(self._tickets.values()), ()):
            ticket.alarm.wake()
            return

    def _leave_unbound(self, ticket: Ticket) -> None:
        self._unbound.pop(ticket, None)
        oldest = next(iter(self._unbound), None)
        if oldest is None:
            self._heard.clear()
            return
        while self._heard:
            first, (count, _) = next(iter(self._heard.items()))
            if count > oldest.opened:
                return
            del self._heard[first]

    def _poll(self, pause: float) -> Body[None]:
        """Poll the jobs of all callers, unless one of them has within ``pause`` seconds."""
        now = clock.monotonic()
        with self._lock:
            if not self._stale and now - self._polled_at < pause:
                return
            self._stale = False
            self._polled_at = now
            seqs = list(self._tickets)
        for start in range(0, len(seqs), MAX_BATCH):
            if not (yield from self._poll_jobs(seqs[start : start + MAX_BATCH])):
                return

    def _poll_jobs(self, seqs: list[int]) -> Body[bool]:
        """Read which of these jobs have ended; return False if the database is away: a caller has to try again."""
        try:
            self._end((yield either(_run, engine.arun, results.ended(seqs), self._listener.using)))
        except Exception as error:
            if not away(error):
                raise
            with self._lock:
                self._stale = True
            return False
        return True


def _run(operation: engine.Operation[T], using: str) -> T:
    """Run an operation with the timeout of an async one: a server that does not answer must not hold the caller."""
    with pool.patiently(using):
        return engine.run(operation, using)


_hubs: process.Shared[str, ReplyHub] = process.Shared()


def get_hub(using: str) -> ReplyHub:
    """Return this process's hub of a database alias."""
    listener = get_listener(using)
    return _hubs.get(using, lambda _: ReplyHub(listener, reply_channel()), usable=lambda hub: hub._listener is listener)


def answer(ticket: Ticket, deadline: float, read: Callable[[], Body[tuple[T] | None]], late: Exception) -> Body[T]:
    """Wait for a job's end until ``deadline`` (monotonic), then return the value of ``read``; else raise ``late``."""
    while (yield from ticket.until_ended(deadline)):
        ticket.again()  # before it reads: the job may be brought back and end again meanwhile
        try:
            found = yield from read()
        except Exception as error:
            left = deadline - clock.monotonic()
            if left <= 0 or not away(error):
                raise
            ticket.ended = True
            yield ticket.sleep(min(left, LAST_POLL))
            continue
        if found is not None:  # else the job was brought back after its end
            return found[0]
    raise late


def work_in_place(using: str) -> Body[Either | None]:
    """Return the step that runs jobs in place of a worker, in tests; elsewhere ``None``."""
    hidden = yield either(pool.in_transaction, pool.ain_transaction, using)
    inline = process.switches.inline
    if inline is not None and (hidden or inline.always):
        return either(inline, sync_to_async(inline))
    if hidden:
        raise InvalidOption(
            "waiting inside transaction.atomic() would wait for a job that no worker can see. Wait for it after the"
            " transaction, or in a test use the fixture 'leasequeue'."
        )
    return None
