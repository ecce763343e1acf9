"""The streams of a watch: records of several topics as they are written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from ...conf import process
from ...engine.limits import MAX_SEQ
from ...engine.outage import passes
from ...engine.topics.log import LogPage, read, sealer
from ...exceptions import QueueNotFound
from ...notify import Subscription, Watch, get_listener
from ..running import RequestRunner
from ..streaming import Stream, error_frame, frame, in_background, outage
from . import answers
from .reading import unsealed
from .sealing import seal_watcher
from .stream_registry import TOPICS_CHANNEL

logger = logging.getLogger("django_leasequeue.http")

#: Records that are read at once.
PAGE = 256
#: Seconds after which a topic is looked at although nobody said anything; while there is no LISTEN connection.
BACKSTOP, POLL = 10.0, 0.5
#: Seconds between looks while the database is away.
RETRY = 0.5
#: In a frame's id: a topic that is gone.
GONE = "-"

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

_reads: process.PerLoop[dict[tuple[Any, ...], asyncio.Task[LogPage]]] = process.PerLoop(dict)


def _encode(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text or "0"


def encode_id(positions: Mapping[str, int | None]) -> str:
    """Return the id of a frame: where the reader stands in each topic, in order of their names."""
    return ".".join(GONE if seq is None else _encode(seq) for _, seq in sorted(positions.items()))


def decode_id(frame_id: str, topics: Mapping[str, int]) -> dict[str, int | None]:
    """Return where a reader stood; where it began if the id is not one of this watch's."""
    parts = frame_id.split(".")
    if len(parts) != len(topics) or not all(part == GONE or (part.isalnum() and len(part) <= 13) for part in parts):
        return dict(topics)
    try:
        seqs = [None if part == GONE else int(part, 36) for part in parts]
    except ValueError:
        return dict(topics)
    if any(seq is not None and seq > MAX_SEQ for seq in seqs):
        return dict(topics)
    return dict(zip(sorted(topics), seqs, strict=True))


async def shared_read(runner: RequestRunner, project: str, topic: str, after: int) -> LogPage:
    """Read a page; readers that stand at the same place share one statement."""
    running = _reads.get()
    place = (runner.using, project, topic, after)
    task = running.get(place)
    if task is None:
        operation = read(topic, project=project, after=after, size=PAGE, seals=sealer(runner.using))
        task = running[place] = in_background(runner.run(operation))

        def done(task: asyncio.Task[LogPage]) -> None:
            running.pop(place, None)
            if not task.cancelled():
                task.exception()  # told to whoever still waits; nobody else has to know

        task.add_done_callback(done)
    # The end of one reader must not end the read of the others.
    return await asyncio.shield(task)


class WatchStream(Stream):
    """One reader of some topics.

    Args:
        runners: topic -> where to read it.
        project: the tenant.
        positions: topic -> the last number that was read, ``None`` for a topic that is known to be gone.
        recheck: see ``Stream``.
    """

    def __init__(
        self,
        runners: Mapping[str, RequestRunner],
        project: str,
        positions: Mapping[str, int | None],
        recheck: Callable[[], Awaitable[Any]],
    ) -> None:
        super().__init__(recheck)
        self._runners = runners
        self._project = project
        self._positions = dict(positions)
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        #: Topics to look at.
        self._fresh = {topic for topic, seq in positions.items() if seq is not None}
        #: Topics whose reader was told that it has everything.
        self._told: set[str] = set()
        self._ids: dict[str, int] = {}
        self._watches: dict[str, Watch] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._sealing: dict[str, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def opened(self) -> None:
        self._task = in_background(self._run())

    def wants(self) -> None:
        self._event.set()

    def left(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for topic in list(self._watches):
            self._listen_no_more(topic)
        for future in self._sealing.values():
            future.cancel()
        outage.ends(self)

    def error(self, code: int, message: str) -> bytes:
        return error_frame(code, message, encode_id(self._positions))

    def _send(self, event: str, data: Any) -> None:
        self.push(frame(event, data, encode_id(self._positions)))

    async def _run(self) -> None:
        try:
            while any(seq is not None for seq in self._positions.values()):
                self._event.clear()
                while self._fresh and self.hungry:
                    await self._look_in_time(self._fresh.pop())
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._patience()):
                        await self._event.wait()
                        continue
                # Nobody woke us: look at everything, but for a client that does not read.
                if self.hungry:
                    self._fresh.update(topic for topic, seq in self._positions.items() if seq is not None)
            self.end()
        except Exception:
            logger.exception("A watch failed")
            self.end(self.error(500, "An error of the server. Connect again."))

    def _patience(self) -> float:
        live = all(watch.live for watch in self._watches.values())
        return BACKSTOP if live else POLL

    async def _look_in_time(self, topic: str) -> None:
        """Look at a topic; while the database is away, wait."""
        try:
            await self._look(topic)
        except Exception as error:
            if not passes(error):
                raise
            outage.begins(self, error)
            self._fresh.add(topic)
            await asyncio.sleep(RETRY)
        else:
            outage.ends(self)

    async def _look(self, topic: str) -> None:
        after = self._positions[topic]
        if after is None:
            return
        try:
            page = await shared_read(self._runners[topic], self._project, topic, after)
        except QueueNotFound:
            self._gone(topic)
            return
        if self._ids.setdefault(topic, page.queue_id) != page.queue_id:
            self._gone(topic)  # and made anew: another topic of that name
            return
        self._tell(topic, page)
        if page.more:
            self._fresh.add(topic)
            return
        if topic not in self._watches:
            await self._listen(topic, page.queue_id)
            return
        if unsealed(page, after) or (not page.sealed and page.head_seq > page.cursor):
            self._wait_for_seal(topic, page.head_seq)
        elif topic not in self._told:
            self._told.add(topic)
            self._send("caught-up", {"topic": topic, "head_seq": page.head_seq, "next_from_seq": page.cursor})

    def _tell(self, topic: str, page: LogPage) -> None:
        if page.gap is not None:
            # The gap lies before what is left: records come after it.
            self._positions[topic] = max(self._positions[topic] or 0, min(page.gap.end, page.cursor))
            self._send("tombstone", {"topic": topic, **answers.tombstone(page.gap)})
        for row in page.records:
            self._positions[topic] = max(self._positions[topic] or 0, row.seq)
            self._send("record", {"topic": topic, **answers.record(row)})
        if page.records or page.gap is not None:
            self._told.discard(topic)
        self._positions[topic] = max(self._positions[topic] or 0, page.cursor)

    def _gone(self, topic: str) -> None:
        self._positions[topic] = None
        self._listen_no_more(topic)
        self._send("topic-deleted", {"topic": topic})

    def _listen_no_more(self, topic: str) -> None:
        watch, subscription = self._watches.pop(topic, None), self._subscriptions.pop(topic, None)
        if watch is not None:
            watch.close()
        if subscription is not None:
            subscription.close()

    async def _listen(self, topic: str, queue_id: int) -> None:
        """Say that we wait for this topic, and look once more: what came in between told nobody."""
        listener = get_listener(self._runners[topic].using)
        watch = self._watches[topic] = listener.watch([queue_id], lambda: self._topic_news(topic))
        deleted = f"d{queue_id}"
        subscription = self._subscriptions[topic] = listener.subscribe(
            TOPICS_CHANNEL, lambda payload: self._topic_news(topic) if payload in (None, deleted) else None
        )
        await watch.async_ready()
        await subscription.async_ready()
        self._fresh.add(topic)

    def _topic_news(self, topic: str) -> None:
        """A topic is worth a look. Called by the listener's thread."""

        def note() -> None:
            self._fresh.add(topic)
            self._event.set()

        with suppress(RuntimeError):  # the loop is closed: nobody streams there
            self._loop.call_soon_threadsafe(note)

    def _wait_for_seal(self, topic: str, number: int) -> None:
        """Look again when a number is sealed."""
        if topic in self._sealing:
            return
        future = self._sealing[topic] = seal_watcher(self._runners[topic]).when(number)

        def done(_: object) -> None:
            self._sealing.pop(topic, None)
            self._fresh.add(topic)
            self._event.set()

        future.add_done_callback(done)
