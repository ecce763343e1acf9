"""The listener: a thread that keeps one LISTEN connection for all callers of this process, and their subscriptions."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import TypeVar

import psycopg

from .. import conf
from ..conf import process
from ..conf.loglines import contained
from ..engine import pool
from ..engine.outage import FIRST_RETRY, LAST_RETRY, Outage
from .session import JOBS, Deaf, Session, WakeUpPipe, listen_dsn

logger = logging.getLogger("django_leasequeue.notify")

#: Seconds that a lock is kept after its last waiter left: to take and release it for each job would cost more.
LINGER = 0.5
#: Seconds from the last subscriber's end to UNLISTEN: the next one often comes before.
CHANNEL_LINGER = 5.0
#: Seconds without a waiting caller after which the connection is closed.
IDLE_CLOSE = 10.0
#: Seconds between heartbeats on a silent connection.
HEARTBEAT = 20.0
#: First and longest pause between polls while transactions run that began before our lock was held; doubled each time.
FIRST_POLL, LAST_POLL = 0.005, 0.25
#: Seconds of a sleep that gives the GIL to the threads that were just woken: they start 0.07 to 0.3 ms earlier.
YIELD_GIL = 0.00001
#: Seconds until the listener tries again after its connection did not receive its own notification.
RETRY_PROOF = 60.0
#: Seconds that a caller waits for its subscription; after them it polls until the subscription is live.
READY_TIMEOUT = 5.0


@dataclass(eq=False)
class Subscription:
    """A callback for the notifications of a channel, until ``close``; the connection has to listen to it first."""

    _listener: Listener
    #: Names of channels, or (of a ``Watch``) ids of queues.
    keys: tuple[str | int, ...]
    callback: Callable[..., None]
    #: Done when this is in effect (True), or when it is not and one has to poll for now (False).
    ready: Future[bool] = field(default_factory=Future, init=False)

    @property
    def live(self) -> bool:
        """Whether notifications arrive now, or producers see that this caller waits; else the caller has to poll."""
        listening, held = self._listener._listening, self._listener._held
        return all(key in held or key in listening for key in self.keys)

    def wait_ready(self, timeout: float = READY_TIMEOUT) -> bool:
        """Wait until this is in effect; return False if the caller has to poll: no connection, or none is wanted."""
        try:
            return self.ready.result(timeout)
        except FutureTimeoutError:
            return False

    async def async_ready(self, timeout: float = READY_TIMEOUT) -> bool:  # noqa: ASYNC109  (the thread's call)
        if self.ready.done():
            return self.ready.result()
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self.ready)), timeout)
        except TimeoutError:
            return False

    def close(self) -> None:
        # The thread sees it at its next heartbeat: a wake-up for each request would cost more.
        listener = self._listener
        with listener._lock:
            for key in self.keys:
                callers = listener._callers.get(key, set())
                callers.discard(self)
                if not callers and listener._callers.pop(key, None) is not None:
                    listener._left[key] = time.monotonic()


class Watch(Subscription):
    """A caller that waits for jobs of queues, until ``close``; each is a lock that producers see."""

    def close(self) -> None:
        super().close()
        self._listener._wakeup.wake()


S = TypeVar("S", bound=Subscription)


class Listener:
    """One LISTEN connection for all callers in this process that wait on one database.

    It connects for the first caller, reconnects by itself (callers then wake up and look), and closes when idle.
    Callers poll if ``LISTEN_DSN`` is "", or behind a pooler without one.
    """

    def __init__(self, using: str) -> None:
        self.using = using
        self._lock = threading.Lock()
        self._wakeup = WakeUpPipe()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        #: Keys are channels and queue ids.
        self._callers: dict[str | int, set[Subscription]] = {}
        self._waiting_ready: list[Subscription] = []
        # What is in effect on the connection; changed by the thread only, under the lock.
        self._listening: set[str] = set()
        #: Queue id -> transaction mark; None: every transaction that began before our lock has ended.
        self._held: dict[int, int | None] = {}
        #: Key without callers -> when the last one left (monotonic).
        self._left: dict[str | int, float] = {}
        #: Values of ``LISTEN_DSN`` that have delivered a notification.
        self._proven: set[str | None] = set()
        #: Whether the last test notification did not arrive.
        self._deaf = False
        self._outage = Outage(logger, "LISTEN connection lost", "LISTEN connection is back", database=using)
        self._silence = Outage(logger, "No notification reaches this process", "Notifications come", database=using)

    @property
    def polls(self) -> bool:
        dsn = listen_dsn(self.using)
        return dsn == "" or (dsn is None and not pool.prepares(self.using))

    def subscribe(self, channel: str, callback: Callable[[str | None], None]) -> Subscription:
        """Subscribe to a channel, from ``ready`` on; use ``watch`` for ready jobs, which ``JOBS`` leaves out.

        ``callback`` gets each payload, and ``None`` after a reconnect, when notifications may be missing: look
        yourself. It runs in the listener's thread: it must be quick and must not block.
        """
        if not channel or len(channel.encode()) > 63:
            raise ValueError(f"channel must be a name of 1 to 63 bytes; it is {channel!r}.")
        return self._add(Subscription(self, (channel,), callback))

    def watch(self, queue_ids: Sequence[int], callback: Callable[[], None]) -> Watch:
        """Call ``callback`` (as of ``subscribe``) when jobs may be ready. Wait for ``ready``, then look once."""
        return self._add(Watch(self, tuple(dict.fromkeys(queue_ids)), callback))

    def _add(self, entry: S) -> S:
        with self._lock:
            for key in entry.keys:
                self._callers.setdefault(key, set()).add(entry)
                self._left.pop(key, None)
            if (live := entry.live) or self.polls or self._closing.is_set():
                entry.ready.set_result(live)
                return entry
            if self._deaf:
                entry.ready.set_result(False)
            else:
                self._waiting_ready.append(entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"leasequeue-listen-{self.using}", daemon=True)
                self._thread.start()
            self._wakeup.wake()
        return entry

    def close(self) -> None:
        """Close the connection and wait for the thread; remaining callers poll."""
        with self._lock:
            self._closing.set()
            thread = self._thread
            self._wakeup.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join(10)

    def _run(self) -> None:
        # This and the methods below run in the listener's thread.
        process.own_thread()
        retry = FIRST_RETRY
        lost = False
        while True:
            try:
                dsn = listen_dsn(self.using)
                session = Session(self.using, dsn, self._wakeup)
                try:
                    if dsn not in self._proven:  # before a caller relies on it
                        session.prove(self._closing.is_set)
                        self._proven.add(dsn)
                    self._deaf = False
                    self._reconcile(session)
                    if lost:
                        self._outage.ends(self)
                        self._silence.ends(self)
                        self._wake_all()
                    retry, lost = FIRST_RETRY, False
                    self._serve(session)
                finally:
                    session.close()
            except Deaf as error:
                lost, self._deaf, retry = True, True, RETRY_PROOF
                self._silence.begins(self, error)
            except (psycopg.Error, OSError) as error:
                lost = True
                self._outage.begins(self, error)
            with self._lock:
                for in_effect in (self._listening, self._held, self._left):
                    in_effect.clear()
                waiting, self._waiting_ready = self._waiting_ready, []
            for entry in waiting:
                entry.ready.set_result(False)
            if lost:
                self._closing.wait(retry * random.uniform(0.5, 1))
                retry = min(retry * 2, LAST_RETRY)
            with self._lock:
                if self._closing.is_set() or not self._callers:
                    self._thread = None
                    return

    def _serve(self, session: Session) -> None:
        """Pass notifications on, until no caller has waited for a while."""
        poll_at, step = 0.0, FIRST_POLL
        quiet_since = heard = time.monotonic()
        while not self._closing.is_set():
            fresh = self._reconcile(session)
            now = time.monotonic()
            if fresh:
                step, poll_at = FIRST_POLL, now + FIRST_POLL
            if self._unsettled() and now >= poll_at:
                self._poll_unsettled(session)
                step = min(step * 2, LAST_POLL)
                poll_at = now + step
            if not self._quiet():
                quiet_since = now
            elif now - quiet_since >= IDLE_CLOSE:
                with self._lock:
                    if self._quiet():
                        self._listening.clear()  # later subscriptions need a new connection
                        return
            if now - heard >= HEARTBEAT:
                session.oldest()
                heard = now
            came = session.read(self._pause(now, poll_at, heard, quiet_since))
            for channel, payload in came:
                if channel == JOBS and payload[:1] == "q" and payload[1:].isdigit():
                    self._notify(int(payload[1:]))
                else:
                    self._notify(channel, payload)
            if came:
                time.sleep(YIELD_GIL)

    def _pause(self, now: float, poll_at: float, heard: float, quiet_since: float) -> float:
        ends = [heard + HEARTBEAT]
        if self._unsettled():
            ends.append(poll_at)
        if self._quiet():
            ends.append(quiet_since + IDLE_CLOSE)
        with self._lock:
            ends.extend(left + _linger(key) for key, left in self._left.items())
        return max(0.0, min(ends) - now)

    def _quiet(self) -> bool:
        return not (self._callers or self._held)

    def _unsettled(self) -> bool:
        with self._lock:
            return any(mark is not None for mark in self._held.values()) or not self._watched() <= self._held.keys()

    def _watched(self) -> set[int]:
        return {key for key in self._callers if isinstance(key, int)}

    def _reconcile(self, session: Session) -> bool:
        """LISTEN and lock as the callers need it; return whether new locks have not settled yet."""
        now = time.monotonic()
        with self._lock:
            over = [key for key, left in self._left.items() if now - left >= _linger(key)]
            for key in over:
                del self._left[key]
            watched = self._watched()
            kept = {key for key in self._left if key in self._listening}
            wanted = {key for key in {*self._callers, *kept} if isinstance(key, str)}
            if watched or self._held:
                wanted.add(JOBS)
            listen, unlisten = wanted - self._listening, self._listening - wanted
            self._listening -= unlisten
            hold = watched - self._held.keys()
            release = [key for key in over if isinstance(key, int) and key in self._held]
            for queue_id in release:
                del self._held[queue_id]
        session.listen(listen, over=unlisten)
        if release:
            session.release(release)
        held, mark = session.hold(hold) if hold else ([], None)
        with self._lock:
            self._listening |= listen
            self._held.update(dict.fromkeys(held, mark))
            for queue_id in held:
                if queue_id not in self._callers:
                    self._left.setdefault(queue_id, now)
            done = self._waiting_ready
            self._waiting_ready = [entry for entry in done if not entry.live]
        for entry in done:
            if entry not in self._waiting_ready:
                entry.ready.set_result(True)
        return mark is not None or len(held) < len(hold)

    def _poll_unsettled(self, session: Session) -> None:
        """Wake callers whose lock is new: transactions that did not see it commit jobs without a notification."""
        oldest = session.oldest()
        unsettled = [queue_id for queue_id, mark in self._held.items() if mark is not None]
        with self._lock:
            for queue_id in unsettled:
                mark = self._held[queue_id]
                if mark is not None and oldest >= mark:
                    self._held[queue_id] = None
        for queue_id in unsettled:
            self._notify(queue_id)

    def _notify(self, key: str | int, *payload: str) -> None:
        with self._lock:
            callers = self._callers.get(key, set()).copy()
        _call(callers, *payload)

    def _wake_all(self) -> None:
        with self._lock:
            callers = {caller for found in self._callers.values() for caller in found}
        watches = {caller for caller in callers if isinstance(caller, Watch)}
        _call(callers - watches, None)
        _call(watches)


def _linger(key: str | int) -> float:
    return LINGER if isinstance(key, int) else CHANNEL_LINGER


def _call(callers: Collection[Subscription], *payload: str | None) -> None:
    for caller in callers:
        with contained(logger, "A callback of the listener raised"):  # it must not silence the others
            caller.callback(*payload)


_listeners: process.Shared[str, Listener] = process.Shared()


def get_listener(using: str | None = None) -> Listener:
    """Return this process's listener of an alias (default: ``LEASEQUEUE["DATABASE"]``). It connects when it is used."""
    return _listeners.get(using or conf.settings.DATABASE, Listener)


def close_listeners() -> None:
    """Close every listener of this process and wait for their threads (at shutdown, and between tests)."""
    for listener in _listeners.clear():
        listener.close()
