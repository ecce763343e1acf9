"""The bytes that wait for the clients of event streams: bounded for each stream and for all of a server process.

A stream reads ``STREAM_BYTES`` ahead, and what all of them hold stays below ``MAX_STREAM_BYTES``. A client that takes
nothing for ``SLOW_STREAM_SECONDS`` is cut off; where the memory is short, after ``STUCK`` seconds already, the one that
has stood still for longest first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from .. import conf
from ..conf import process
from .errors import logger

#: Bytes that are read for a stream at once (one record may have more), and that are sent as one piece.
STREAM_BYTES, PIECE_BYTES = 65_536, 8_192
#: Seconds without progress after which a client is cut off while others wait for memory; between two looks.
STUCK, LOOK = 1.0, 1.0


class Sending(Protocol):
    """An open stream: since when (monotonic) its client has not taken the piece that is under way, if one is."""

    sending_since: float | None

    def wants(self) -> None:
        """Get more."""

    def cut_off(self) -> None:
        """End the connection at once, whatever was not sent."""


class Backlog:
    """Bytes that wait for the clients of the streams of one event loop."""

    def __init__(self) -> None:
        self.bytes = 0
        self.streams: set[Sending] = set()
        #: Streams that wait for room, the first one first: each wakes when there is some.
        self.refused: dict[Sending, None] = {}
        #: Clients that were cut off, since the process began.
        self.slow = 0
        self._reserved = 0
        self._watcher: asyncio.Task[None] | None = None

    @property
    def room(self) -> int:
        return conf.settings.API.MAX_STREAM_BYTES - self.bytes - self._reserved

    def enter(self, stream: Sending) -> None:
        self.streams.add(stream)
        if self._watcher is None:
            self._watcher = asyncio.ensure_future(self._watch())

    def leave(self, stream: Sending, size: int) -> None:
        """Forget a stream and the bytes that were not sent."""
        self.streams.discard(stream)
        self.refused.pop(stream, None)
        self.free(size)

    def free(self, size: int) -> None:
        """Note that bytes were sent; tell streams that wait for room."""
        self.bytes -= size
        for stream in list(self.refused)[: max(0, self.room // STREAM_BYTES)]:
            del self.refused[stream]
            stream.wants()

    def fits(self, size: int, own: int = 0) -> bool:
        """Return whether there is room, ``own`` bytes of it reserved; for what is larger than all of it, if alone."""
        return size - own <= self.room or self.bytes + self._reserved <= own

    @contextmanager
    def reserved(self, streams: Iterable[Sending], size: int) -> Iterator[bool]:
        """Keep room for what is about to be read; ``False`` if there is none: the streams are told when there is."""
        if not self.fits(size):
            self.refused |= dict.fromkeys(streams)
            yield False
            return
        self._reserved += size
        try:
            yield True
        finally:
            self._reserved -= size
            self.free(0)

    async def _watch(self) -> None:
        try:
            while self.streams:
                await asyncio.sleep(LOOK)
                self._cut_off(time.monotonic())
        finally:
            self._watcher = None

    def _cut_off(self, now: float) -> None:
        """Cut off who takes nothing, the one that has stood still for longest first."""
        slow, wanted = conf.settings.API.SLOW_STREAM_SECONDS, len(self.refused)
        standing = [(stream.sending_since, stream) for stream in self.streams if stream.sending_since is not None]
        for since, stream in sorted(standing, key=lambda pair: pair[0]):
            if now - since < (STUCK if wanted > 0 else slow):
                return
            wanted -= 1
            self.slow += 1
            logger.info("An event stream was cut off: its client took nothing for %.0f s", now - since)
            stream.cut_off()


backlogs: process.PerLoop[Backlog] = process.PerLoop(Backlog)
