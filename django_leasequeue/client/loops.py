"""Endless sources of jobs: the claim loop, and the event stream ``/work`` with its reconnects. No IO: see ``plans``."""

from __future__ import annotations

import json
import logging
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from ..twins import Give
from .calls import address, claim_jobs, given
from .errors import ApiError, ClientError, ConnectionFailed, ServerUnavailable, Throttled
from .messages import ClientJob
from .plans import Close, Open, Pause, Read, Request, Retry, Source, call, read

logger = logging.getLogger("django_leasequeue.client")

#: Seconds between two claims of an empty queue: doubled from, up to what the caller says.
FIRST_POLL = 0.05
#: Seconds without even a heartbeat (the server sends one every 15) after which a stream counts as broken.
SILENCE = 40.0
#: Seconds between connecting again, at most: who waits longer is late when the server is back.
LONGEST_WAIT = 2.0


def claims(
    topic: str,
    node: str,
    retry: Retry,
    *,
    max: int | Callable[[], int] = 1,
    lease_ms: int | None = None,
    poll_seconds: float = 1.0,
) -> Source:
    """Give lists of jobs, claim by claim, for ever.

    A server that cannot be reached is waited for; what it refuses (a wrong key, no such topic) is raised. ``max`` is
    how many jobs a claim takes at most; a function is asked before each claim, and 0 ends the loop. An empty queue is
    left alone for ``poll_seconds`` at most.
    """
    wait = FIRST_POLL
    failed = 0
    while True:
        size = max() if callable(max) else max
        if not size:
            return
        try:
            jobs = yield from call(claim_jobs(topic, node, size, lease_ms), retry)
        except (ConnectionFailed, ServerUnavailable, Throttled) as error:
            failed += 1
            # Said when it begins and when it is over, not with every try.
            level = logging.WARNING if failed == 1 else logging.DEBUG
            logger.log(level, "Cannot claim from %r, trying again: %s", topic, error)
            yield Pause(_pause_after(failed, error))
            continue
        if failed:
            logger.info("Claiming from %r again", topic)
        failed = 0
        if jobs:
            wait = FIRST_POLL
            yield Give(jobs)
        else:
            yield Pause(wait * random.uniform(0.75, 1.25))
            wait = min(wait * 2, poll_seconds)


def work(topic: str, node: str, *, max: int = 1, lease_ms: int | None = None) -> Source:
    """Give jobs as the server pushes them, for ever; each ack or nack makes room for the next of ``max``.

    When the connection drops, the server takes back what it pushed through it: those jobs become ``lost``, and the
    stream is opened again. What the server refuses for good (a wrong key, a topic that is gone) is raised.
    """
    query = {name: str(value) for name, value in given(node=node, max=max, lease_ms=lease_ms).items()}
    headers = {"accept": "text/event-stream"}
    request = Request("GET", address(topic, "/work"), query=query, headers=headers, wait=SILENCE)
    failed = 0
    while True:
        held: weakref.WeakSet[ClientJob] = weakref.WeakSet()
        reader = EventReader()
        error: ClientError | None = None
        try:
            answer: httpx.Response = yield Open(request)
            if answer.status_code != 200:
                read(answer)
            if failed:
                logger.info("The stream of %r is open again", topic)
            failed = 0
            while piece := (yield Read()):
                for event in reader.feed(piece):
                    data = _data(event)
                    if event.name == "job":
                        job = ClientJob.of(topic, data)
                        held.add(job)
                        yield Give(job)
                    elif event.name == "cancel":
                        for job in [job for job in held if job.lease_id == data["lease_id"]]:
                            job.lose(cancelled=True)
        except (ConnectionFailed, ServerUnavailable, Throttled) as found:
            error = found
        except ValueError as found:
            error = ConnectionFailed(f"The stream cannot be read: {found}.")
        finally:
            # Also when the iterator is closed: the connection is closed then, and the leases are over.
            for job in held:
                job.lose()
        yield Close()
        failed += 1
        pause = _pause_after(failed, error, (reader.retry or 0) / 1000)
        # Said when it begins and when it is over, not with every try.
        level = logging.DEBUG if failed > 1 else logging.WARNING if error else logging.INFO
        logger.log(level, "The stream of %r ended, connecting again: %s", topic, error or "in order")
        yield Pause(pause)


#: Characters of one event: a job's data and meta are 1 MiB at most.
MAX_EVENT = 4_194_304


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    name: str
    data: str
    id: str | None


class EventReader:
    """Turns bytes into events (WHATWG HTML, "Server-sent events": interpreting an event stream).

    ``retry`` is the reconnection time in milliseconds, once the server sent one.
    """

    def __init__(self) -> None:
        self.retry: int | None = None
        self._rest = b""
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that are complete with this piece."""
        # A line may end with CR LF, LF or CR; a CR at the very end of a piece may be the first half of one end.
        text = self._rest + piece
        held = text.endswith(b"\r")
        lines = (text[:-1] if held else text).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + (b"\r" if held else b"")
        if len(self._rest) + sum(map(len, self._data)) > MAX_EVENT:
            raise ValueError(f"an event is longer than {MAX_EVENT} bytes")
        for line in lines:
            if line:
                self._take(line.decode(errors="replace"))
                continue
            if self._data:
                yield Event(self._name or "message", "\n".join(self._data), self._id)
            self._name, self._data = "", []

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isdecimal():
            self.retry = int(value)


def _data(event: Event) -> Any:
    """Return the data of an event. An error 429 only says that the server sends no job for a moment."""
    data = json.loads(event.data)
    if event.name == "error" and data["code"] != 429:
        raise ServerUnavailable(int(data["code"]), "stream_ended", str(data["message"]))
    if event.name not in ("job", "cancel", "error"):
        raise ValueError(f"an event {event.name!r} is unknown")
    return data


def _pause_after(failed: int, error: ClientError | None, first: float = 0.0) -> float:
    """Return the seconds to wait after so many failures in a row: by chance, or all clients would come back at once."""
    asked = error.retry_after if isinstance(error, ApiError) else None
    step = min(LONGEST_WAIT, (first or 0.5) * 2.0 ** min(failed - 1, 10))
    return (asked or 0.0) + step * random.random()
