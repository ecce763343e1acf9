"""Server-sent events: frames, heartbeats, and an orderly end when the client leaves or the server stops."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, StreamingHttpResponse

from .. import conf
from ..conf import process
from ..engine.outage import Outage
from . import payload
from .errors import ApiError, describe, logger

_stops: process.PerLoop[asyncio.Event] = process.PerLoop(asyncio.Event)
_chained = False


def stopping() -> asyncio.Event:
    """Return this loop's event that is set when the server begins to stop (SIGTERM, SIGINT, or ``stop``)."""
    global _chained

    # The server's own handlers go on as before: they wait for open connections before they tell the application.
    def both(before: Callable[[int, FrameType | None], Any], number: int, frame: FrameType | None) -> Any:
        stop()
        return before(number, frame)

    if not _chained and threading.current_thread() is threading.main_thread():
        _chained = True
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)
            if callable(before):
                signal.signal(number, partial(both, before))
    return _stops.get()


def stop() -> None:
    """Tell every stream of this process to end. May be called from any thread and from a signal handler."""
    for loop, event in _stops.items():
        with suppress(RuntimeError):  # the loop is closed, and its streams with it
            loop.call_soon_threadsafe(event.set)


HEARTBEAT = b": hb\n\n"
#: What every stream begins with: how long to wait before connecting again, and a sign of life.
OPENING = b"retry: 2000\n\n" + HEARTBEAT

#: One line when the first stream gets nothing more from the database, one when the last does again.
outage = Outage(logger, "Streams wait for the database", "Streams go on")

#: The streams that each caller has open in this process.
_open_streams: defaultdict[str, set[Stream]] = defaultdict(set)
_background: set[asyncio.Task[Any]] = set()


def frame(event: str, data: Any, frame_id: str | None = None) -> bytes:
    """Return one event."""
    mark = b"" if frame_id is None else b"id: %b\n" % frame_id.encode()
    return b"%bevent: %b\ndata: %b\n\n" % (mark, event.encode(), payload.dumps(data))


async def within(seconds: float, waiting: Awaitable[Any]) -> bool:
    """Wait so long at most; return whether what is waited for has come."""
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        return False
    return True


def in_background(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Run something to its end although the request that began it is cancelled."""
    task = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


async def finish_background() -> None:
    """Wait for what runs in the background (at shutdown)."""
    if _background:
        await asyncio.wait(_background, timeout=5.0)


def _no_place(who: str) -> str | None:
    """Return why there is no place for another stream of a caller, who may have as many as are free; else ``None``."""
    from .access import OPEN  # (models: asgi.py imports this module before the apps are loaded)

    limit, taken = conf.settings.API.MAX_STREAMS, sum(map(len, _open_streams.values()))
    own = len(_open_streams[who]) if who in _open_streams else 0
    if taken >= limit:
        return f"This server process has {taken} streams open, which is its limit (MAX_STREAMS). Try another one."
    free = f"the {limit - taken} places that are free (of MAX_STREAMS)"
    if who != OPEN.who and own >= limit - taken:
        return f"This key has {own} streams open in this server process; {free} are for others. Try another process."
    return None


def advise_pace(who: str, message: str, seconds: float) -> None:
    """Let the streams of a caller know that its requests are refused for so long."""
    for stream in _open_streams.get(who, set()).copy():
        stream.advise_pace(message, seconds)


def require_stream(request: HttpRequest, who: str) -> None:
    """Answer 406 unless the client takes ``text/event-stream``, 503 under WSGI and when too many streams are open."""
    # Without the header a client takes everything.
    for item in request.META.get("HTTP_ACCEPT", "*/*").split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        if kind in ("text/event-stream", "text/*", "*/*") and "q=0" not in parameters and "q=0.0" not in parameters:
            break
    else:
        raise ApiError(406, "not_acceptable", "This is an event stream: send 'Accept: text/event-stream'.")
    if isinstance(request, WSGIRequest):
        message = (
            "Event streams need an ASGI server, and this one speaks WSGI. Run the project's ASGI application, for"
            " example with uvicorn; the other endpoints work here."
        )
        raise ApiError(503, "not_ready", message, headers={"Retry-After": "60"})
    why = _no_place(who)
    if why is not None:
        raise ApiError(503, "not_ready", why, headers={"Retry-After": "2"})


class EventStreamResponse(StreamingHttpResponse):
    """A response whose iterator is closed with it: the end of a connection is seen at once."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(source, content_type="text/event-stream", headers=headers)
        self._source = source

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._source


class Stream:
    """One open stream: its source pushes frames, the client's speed decides when they leave; ``recheck`` may end it."""

    def __init__(self, recheck: Callable[[], Awaitable[Any]]) -> None:
        self._recheck = recheck
        self._frames: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self.waiting = False
        self.closed = False

    @property
    def hungry(self) -> bool:
        """Whether the client has taken everything and waits: only then it is worth to get more for it."""
        return self.waiting and not self._frames and not self._ended

    def push(self, data: bytes) -> None:
        if not self._ended:
            self._frames.append(data)
            self._wake.set()

    def end(self, data: bytes | None = None) -> None:
        if data is not None:
            self.push(data)
        self._ended = True
        self._wake.set()

    def opened(self) -> None:
        """Begin to get what the stream is for."""

    def wants(self) -> None:
        """Get more: called each time before waiting."""

    def advise_pace(self, message: str, seconds: float) -> None:
        """Requests of this caller are refused for so long."""

    def left(self) -> Awaitable[Any] | None:
        """Clean up, once, at the end of the stream; what takes time goes on in the background."""

    def error(self, code: int, message: str) -> bytes:
        """Return the last event: its code is like an HTTP status."""
        return frame("error", {"code": code, "message": message})

    async def frames(self, who: str) -> AsyncIterator[bytes]:
        """Yield what is to be sent to ``who``, heartbeats in between, until the end."""
        why = _no_place(who)
        if why is not None:  # the last places were taken since the request was admitted
            yield self.error(503, why)
            return
        _open_streams[who].add(self)
        ender = asyncio.ensure_future(self._end_in_time())
        try:
            self.opened()
            yield OPENING
            while True:
                while self._frames:
                    # Several frames that wait go as one piece.
                    piece = b"".join(self._frames)
                    self._frames.clear()
                    yield piece
                if self._ended:
                    break
                if not await self._pause():
                    yield HEARTBEAT
        finally:
            _open_streams[who].discard(self)
            if not _open_streams[who]:
                del _open_streams[who]
            ender.cancel()
            self.closed = True
            cleaning = self.left()
        if cleaning is not None:
            # An orderly end: the server may be about to stop, and would not wait for what runs in the background.
            await asyncio.shield(cleaning)

    async def _pause(self) -> bool:
        """Wait for something to send; return False when it is time for a sign of life instead."""
        self._wake.clear()
        self.waiting = True
        self.wants()
        try:
            return await within(conf.settings.API.HEARTBEAT_SECONDS, self._wake.wait())
        finally:
            self.waiting = False

    async def _end_in_time(self) -> None:
        stop = stopping()
        while not await within(conf.settings.API.RECHECK_SECONDS, stop.wait()):
            try:
                await self._recheck()
            except Exception as error:  # noqa: BLE001  (whatever refuses the client ends the stream)
                answer = describe(error)
                if answer.status < 500 and answer.status != 429:  # those say nothing of the key
                    self.end(self.error(answer.status, answer.message))
                    return
        self.end(self.error(503, "The server stops. Connect again."))


# Tokens stay out of access logs: ``?token=`` is for browsers' event streams, and servers log the whole address.

ACCESS_LOGGERS = (
    "uvicorn.access", "hypercorn.access", "gunicorn.access", "daphne.access", "django.server", "django.channels.server",
)  # fmt: skip

# A query stands behind an address, or alone (gunicorn's %(q)s).
_TOKEN = re.compile(r"((?:^|[?&])token=)[^&\s\"']+")


def redact(value: Any) -> Any:
    """Return an address or a log line without the token in its query; what is no text, as it is."""
    return _TOKEN.sub(r"\1[redacted]", value) if isinstance(value, str) else value


class _Redacted(dict[str, Any]):
    """A server's own log atoms, their tokens masked; gunicorn's answer for names that they do not list as well."""

    def __init__(self, atoms: Mapping[str, Any]) -> None:
        super().__init__({name: redact(value) for name, value in atoms.items()})
        self._atoms = atoms

    def __missing__(self, name: str) -> Any:
        return redact(self._atoms[name])


class RedactTokens(logging.Filter):
    """Takes tokens out of the arguments and the message of a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = redact(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(redact(item) for item in record.args)
        elif isinstance(record.args, Mapping) and not isinstance(record.args, _Redacted):
            record.args = _Redacted(record.args)
        return True


_FILTER = RedactTokens()


def redact_access_logs() -> None:
    """Redact the access logs of the common servers, whichever of them runs this process. May be called again."""
    for name in ACCESS_LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
