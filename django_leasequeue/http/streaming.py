"""Server-sent events: frames, heartbeats, and an orderly end when the client leaves or the server stops."""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
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
from .backlog import PIECE_BYTES, backlogs
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


#: What every event ends with.
END = b"\n\n"


def head(event: str, frame_id: str | None = None) -> bytes:
    """Return the beginning of one event, up to its data."""
    mark = b"" if frame_id is None else b"id: %b\n" % frame_id.encode()
    return b"%bevent: %b\ndata: " % (mark, event.encode())


def frame(event: str, data: Any, frame_id: str | None = None) -> bytes:
    """Return one event."""
    return b"%b%b%b" % (head(event, frame_id), payload.dumps(data), END)


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
        self._frames: deque[bytes | memoryview] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self._sender: asyncio.Task[Any] | None = None
        self._transport: asyncio.Transport | None = None
        #: Bytes that the client has not taken, as if none were shared, and of those that are under way.
        self._size = self._sending = 0
        self.backlog = backlogs.get()
        self.sending_since: float | None = None
        self.waiting = False
        self.closed = False

    @property
    def hungry(self) -> bool:
        """Whether the client has taken everything and waits: only then it is worth to get more for it."""
        return self.waiting and not self._frames and not self._ended and self not in self.backlog.refused

    def push(self, *parts: bytes) -> None:
        """Send a frame, which may come in parts: streams share what is the same for all of them."""
        if not self._ended:
            size = sum(map(len, parts))
            self._frames.extend(parts)
            self._size += size
            self.backlog.bytes += size
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

    def cut_off(self) -> None:
        """End the connection at once, whatever was not sent: its client does not read."""
        self._ended = True
        if self._transport is not None:
            # Not what the kernel has buffered either: it would offer that for as long as the client is there.
            connection = self._transport.get_extra_info("socket")
            if connection is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        elif self._sender is not None:
            self._sender.cancel()

    async def frames(self, who: str, transport: asyncio.Transport | None = None) -> AsyncIterator[bytes]:
        """Yield what is to be sent to ``who``, heartbeats in between, until the end; ``transport``: if it is known."""
        why = _no_place(who)
        if why is not None:  # the last places were taken since the request was admitted
            yield self.error(503, why)
            return
        _open_streams[who].add(self)
        self._sender, self._transport = asyncio.current_task(), transport
        if transport is not None:
            transport.set_write_buffer_limits(high=PIECE_BYTES)
        self.backlog.enter(self)
        ender = asyncio.ensure_future(self._end_in_time())
        try:
            self.opened()
            piece: bytes | None = OPENING
            while piece is not None:
                self.sending_since = time.monotonic()
                yield piece
                self.sending_since = None
                piece = await self._next_piece()
        finally:
            _open_streams[who].discard(self)
            if not _open_streams[who]:
                del _open_streams[who]
            ender.cancel()
            self.closed = self._ended = True
            self._frames.clear()
            self.backlog.leave(self, self._size)
            cleaning = self.left()
        if cleaning is not None:
            # An orderly end: the server may be about to stop, and would not wait for what runs in the background.
            await asyncio.shield(cleaning)

    async def _next_piece(self) -> bytes | None:
        """Return the frames that wait, of many a part; a sign of life where none comes in time; ``None`` at the end."""
        self._size -= self._sending
        self.backlog.free(self._sending)
        self._sending = 0
        if not self._frames and not self._ended and not await self._pause():
            return HEARTBEAT
        if not self._frames:
            return None
        taken: list[bytes | memoryview] = []
        left = PIECE_BYTES
        while self._frames and left > 0:
            data = self._frames.popleft()
            if len(data) > left:
                data = memoryview(data)
                self._frames.appendleft(data[left:])
                data = data[:left]
            taken.append(data)
            left -= len(data)
        self._sending = PIECE_BYTES - left
        return b"".join(taken)

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
