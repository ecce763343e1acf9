"""The ends of jobs as they are told: one channel and one LISTEN connection a process, however many callers wait.

A job that somebody waits for notifies its callers' channels in the transaction that ends it; the payload is
``<number>:<1 completed|2 failed|3 cancelled>:<key>``. Nothing is sent for jobs that nobody waits for.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from ..conf import process
from ..notify import Listener, Subscription, get_listener, reply_channel

#: Seconds between two looks at jobs that are waited for: while their ends are told, and while they cannot be.
BACKSTOP, FIRST_POLL, LAST_POLL = 15.0, 0.025, 0.5


class Alarm(Protocol):
    """An object that wakes one caller, in a thread or in an event loop."""

    def wake(self) -> None:
        """End the caller's wait, from any thread; must not block."""
        ...


class Ticket:
    """One caller's place in the hub. It hears from the moment it is open, even of jobs it does not know yet.

    Args:
        hub: whose.
        alarm: what is woken when there is something to look at.
    """

    __slots__ = ("_alarm", "_hub", "_polled", "ended", "opened", "seq", "subscription", "told", "word")

    def __init__(self, hub: ReplyHub, alarm: Alarm, subscription: Subscription, opened: int) -> None:
        self._hub = hub
        self._alarm = alarm
        self._polled = FIRST_POLL
        self.subscription = subscription
        #: The count of what had been heard when it was opened.
        self.opened = opened
        #: The job it waits for; ``None`` until ``bind``.
        self.seq: int | None = None
        #: Whether that job has ended.
        self.ended = False
        #: The end as it was told: "1" completed, "2" failed, "3" cancelled, "" not told.
        self.word = ""
        #: Whether its end will be told at all.
        self.told = True

    @property
    def live(self) -> bool:
        """Whether the end will be heard when it comes."""
        return self.told and self.subscription.live

    def wake(self) -> None:
        """Have the caller look."""
        self._alarm.wake()

    def bind(self, seq: int) -> None:
        """Wait for this job. If its end was told since the ticket was opened, ``ended`` is set at once."""
        self._hub._bind(self, seq)

    def again(self) -> None:
        """Go on waiting: the job was brought back after its end."""
        self._hub._again(self)

    def patience(self) -> float:
        """Return the seconds to sleep at most before ``look_due``: many while ends are told, few while they are not."""
        if self.live:
            self._polled = FIRST_POLL
            return BACKSTOP
        step, self._polled = self._polled, min(self._polled * 2, LAST_POLL)
        return step

    def look_due(self) -> list[int]:
        """Return the jobs to look at now, for all callers; none when somebody has just looked."""
        return self._hub._look_due(BACKSTOP / 2 if self.live else FIRST_POLL)

    def looked(self, ended: list[int]) -> None:
        """Tell what has ended of what ``look_due`` returned."""
        self._hub._end(ended)

    def look_failed(self) -> None:
        """Tell that one could not look: somebody has to try again."""
        self._hub._look_failed()

    def close(self) -> None:
        """Wait no more. The last one to leave ends the listening."""
        self._hub._close(self)


class ReplyHub:
    """The callers of this process who wait for jobs of one database. Made by ``get_hub``.

    Args:
        listener: of the database.
        channel: this process's.
    """

    def __init__(self, listener: Listener, channel: str) -> None:
        self.channel = channel
        self._listener = listener
        self._lock = threading.Lock()
        self._subscription: Subscription | None = None
        self._tickets: dict[int, set[Ticket]] = {}
        # Tickets without a job yet, oldest first, and what was heard since the oldest of them was opened.
        self._unbound: dict[Ticket, None] = {}
        self._heard: dict[int, tuple[int, str]] = {}
        self._count = 0
        self._open = 0
        self._looked_at = 0.0
        self._stale = False

    @property
    def waiting(self) -> int:
        """The number of callers who wait."""
        return self._open

    def open(self, alarm: Alarm) -> Ticket:
        """Open a ticket; wait for its ``subscription`` to be ready before the job can end."""
        with self._lock:
            if self._subscription is None:
                self._subscription = self._listener.subscribe(self.channel, self._hear)
            ticket = Ticket(self, alarm, self._subscription, self._count)
            self._unbound[ticket] = None
            self._open += 1
        return ticket

    def _hear(self, payload: str | None) -> None:
        """In the listener's thread."""
        if payload is None:
            self._reconnected()
            return
        number, _, rest = payload.partition(":")
        if number.isdigit():
            self._end([int(number)], rest[:1])

    def _end(self, seqs: list[int], word: str = "") -> None:
        with self._lock:
            found: list[Ticket] = []
            for seq in seqs:
                self._count += 1
                if self._unbound:
                    self._heard.pop(seq, None)
                    self._heard[seq] = (self._count, word)
                found.extend(self._tickets.pop(seq, ()))
            for ticket in found:
                ticket.ended, ticket.word = True, word
        for ticket in found:
            ticket.wake()

    def _reconnected(self) -> None:
        """Ends may have been missed: one caller looks for all."""
        with self._lock:
            self._stale = True
            one = next((ticket for tickets in self._tickets.values() for ticket in tickets), None)
        if one is not None:
            one.wake()

    def _bind(self, ticket: Ticket, seq: int) -> None:
        with self._lock:
            ticket.seq = seq
            count, word = self._heard.get(seq, (0, ""))
            if count > ticket.opened:
                ticket.ended, ticket.word = True, word
            else:
                self._tickets.setdefault(seq, set()).add(ticket)
            self._leave_unbound(ticket)

    def _again(self, ticket: Ticket) -> None:
        with self._lock:
            ticket.ended, ticket.word = False, ""
            if ticket.seq is not None:
                self._tickets.setdefault(ticket.seq, set()).add(ticket)

    def _leave_unbound(self, ticket: Ticket) -> None:
        self._unbound.pop(ticket, None)
        oldest = next(iter(self._unbound), None)
        if oldest is None:
            self._heard.clear()
            return
        while self._heard:
            first = next(iter(self._heard))
            if self._heard[first][0] > oldest.opened:
                return
            del self._heard[first]

    def _look_due(self, pause: float) -> list[int]:
        now = time.monotonic()
        with self._lock:
            if not self._stale and now - self._looked_at < pause:
                return []
            self._stale = False
            self._looked_at = now
            return list(self._tickets)

    def _look_failed(self) -> None:
        with self._lock:
            self._stale = True

    def _close(self, ticket: Ticket) -> None:
        with self._lock:
            self._open -= 1
            self._leave_unbound(ticket)
            if ticket.seq is not None and (tickets := self._tickets.get(ticket.seq)) is not None:
                tickets.discard(ticket)
                if not tickets:
                    del self._tickets[ticket.seq]
            over = None
            if not self._open:
                over, self._subscription = self._subscription, None
        if over is not None:
            over.close()


_hubs: process.Shared[str, ReplyHub] = process.Shared()


def get_hub(using: str) -> ReplyHub:
    """Return this process's hub of a database alias."""
    listener = get_listener(using)
    return _hubs.get(using, lambda _: ReplyHub(listener, reply_channel()), usable=lambda hub: hub._listener is listener)
