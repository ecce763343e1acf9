"""The streams of a watch: records as they are written."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from django.utils.http import int_to_base36 as base36

from ...conf import process
from ...engine.limits import MAX_SEQ
from ...engine.outage import passes
from ...engine.topics.log import MAX_TIMELINE, LogPage, TopicRecord, read, sealer
from ...exceptions import LogTruncated, QueueNotFound
from ...notify import JOBS, Subscription, Watch, get_listener
from .. import payload
from ..access import PAYLOADS, Access
from ..backlog import STREAM_BYTES
from ..errors import logger
from ..streaming import END, Stream, frame, head, in_background, outage, within
from ..views import RequestRunner
from .base import record, tombstone
from .reading import seal_watcher

PAGE = 256
#: Seconds between reads of a topic without a notification: usually, and while there is no LISTEN connection.
BACKSTOP, POLL = 10.0, 0.5
#: Seconds between looks while the database is away.
RETRY = 0.5
#: In a frame's id: a topic that is gone.
GONE = "-"


class SharedPage:
    """A page of a topic and the JSON of its records, which is written once for all readers that have the page."""

    def __init__(self, topic: str, page: LogPage) -> None:
        self.page = page
        self._topic = topic
        self._texts: dict[tuple[int, bool], bytes] = {}

    def text(self, row: TopicRecord, access: Access) -> bytes:
        """Return the JSON of a record as a caller may see it."""
        place = (row.seq, PAYLOADS in access.scopes)
        if place not in self._texts:
            self._texts[place] = payload.dumps({"topic": self._topic, **record(row, self._topic, access)})
        return self._texts[place]


_reads: process.PerLoop[dict[tuple[Any, ...], asyncio.Task[SharedPage]]] = process.PerLoop(dict)


class Position(NamedTuple):
    """The last number read in a topic (``None``: that is gone), and the server's timeline then, if it is known."""

    seq: int | None
    timeline: int | None = None


#: What a position is in the id of a frame.
_POSITION = re.compile(r"-|([0-9a-z]{1,13})(?:_([0-9a-z]{1,11}))?")


def encode_id(positions: Mapping[str, Position]) -> str:
    """Return the id of a frame: where the reader stands in each topic, in order of their names."""
    return ".".join(
        GONE if seq is None else base36(seq) if timeline is None else f"{base36(seq)}_{base36(timeline)}"
        for _, (seq, timeline) in sorted(positions.items())
    )


def decode_id(frame_id: str, topics: Mapping[str, int]) -> dict[str, Position]:
    """Return where a reader stood; where it began if the id is not one of this watch's."""
    parts = [_POSITION.fullmatch(part) for part in frame_id.split(".")]
    digits = [part.groups() for part in parts if part]
    positions = [Position(*(None if number is None else int(number, 36) for number in pair)) for pair in digits]
    high = any((seq or 0) > MAX_SEQ or (timeline or 0) > MAX_TIMELINE for seq, timeline in positions)
    if len(positions) != len(topics) or high:
        return {topic: Position(seq) for topic, seq in topics.items()}
    return dict(zip(sorted(topics), positions, strict=True))


async def shared_read(runner: RequestRunner, project: str, topic: str, position: Position, reset: bool) -> SharedPage:
    """Read a page; readers that stand at the same place share one statement."""
    running = _reads.get()
    place = (runner.using, project, topic, position, reset)
    task = running.get(place)
    if task is None:
        after, timeline, seals = position.seq or 0, position.timeline, sealer(runner.using)
        operation = read(
            topic, project=project, after=after, size=PAGE, timeline=timeline, reset=reset, seals=seals,
            most_bytes=STREAM_BYTES,
        )  # fmt: skip

        async def shared() -> SharedPage:
            return SharedPage(topic, await runner.run(operation))

        task = running[place] = in_background(shared())

        def done(task: asyncio.Task[SharedPage]) -> None:
            running.pop(place, None)
            if not task.cancelled():
                task.exception()  # raised in those that still wait; not an unretrieved one

        task.add_done_callback(done)
    # The end of one reader must not end the read of the others.
    return await asyncio.shield(task)


def _size(row: TopicRecord) -> int:
    return len(row.data_json or "") + len(row.meta_json or "")


class WatchStream(Stream):
    """One reader of some topics; where a failover may have lost records it ends, or with ``reset`` goes on."""

    def __init__(
        self,
        runners: Mapping[str, RequestRunner],
        project: str,
        positions: Mapping[str, Position],
        recheck: Callable[[], Awaitable[Any]],
        access: Access,
        *,
        reset: bool = False,
    ) -> None:
        super().__init__(recheck)
        self._access = access
        self._runners = runners
        self._project = project
        self._positions = dict(positions)
        self._reset = reset
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        #: Topics to look at.
        self._fresh = self._there()
        #: Bytes to keep room for at the next look: of a page that there was no room for.
        self._room = STREAM_BYTES
        #: Topics for which ``caught-up`` was sent.
        self._told: set[str] = set()
        self._ids: dict[str, int] = {}
        self._watches: dict[str, Watch] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._sealing: dict[str, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def opened(self) -> None:
        self._task = in_background(self._run())

    def _there(self) -> set[str]:
        return {topic for topic, position in self._positions.items() if position.seq is not None}

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
        return frame("error", {"code": code, "message": message}, encode_id(self._positions))

    def _send(self, event: str, data: Any) -> None:
        self.push(frame(event, data, encode_id(self._positions)))

    async def _run(self) -> None:
        try:
            while self._there():
                self._event.clear()
                while self._fresh and self.hungry:
                    await self._look_in_time(self._fresh.pop())
                live = all(watch.live for watch in self._watches.values())
                # No notification came: read everything, unless the client does not keep up.
                if not await within(BACKSTOP if live else POLL, self._event.wait()) and self.hungry:
                    self._fresh |= self._there()
            self.end()
        except LogTruncated as error:
            self.end(self.error(409, str(error)))
        except Exception:
            logger.exception("A watch failed")
            self.end(self.error(500, "An error of the server. Connect again."))

    async def _look_in_time(self, topic: str) -> None:
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
        position = self._positions[topic]
        if position.seq is None:
            return
        with self.backlog.reserved([self], self._room) as reserved:
            if not reserved:
                self._fresh.add(topic)
                return
            try:
                shared = await shared_read(self._runners[topic], self._project, topic, position, self._reset)
            except QueueNotFound:
                self._gone(topic)
                return
            size = sum(map(_size, shared.page.records))
            if size > self._room and not self.backlog.fits(size, self._room):
                self._room = size
                self._fresh.add(topic)
                return
            self._room = STREAM_BYTES
            await self._show(topic, shared)

    async def _show(self, topic: str, shared: SharedPage) -> None:
        page = shared.page
        if self._ids.setdefault(topic, page.queue_id) != page.queue_id:
            self._gone(topic)  # and made anew: another topic of that name
            return
        if page.reset_to is not None:
            self._positions[topic] = Position(page.reset_to, page.timeline)
            self._told.discard(topic)
            self._send("reset", {"topic": topic, "next_from_seq": page.reset_to, "timeline": page.timeline})
        self._tell(topic, shared)
        if page.more:
            self._fresh.add(topic)
        elif topic not in self._watches:
            await self._listen(topic, page.queue_id)
        elif not page.sealed and page.head_seq > page.cursor:
            self._wait_for_seal(topic, page.head_seq)
        elif topic not in self._told:
            self._told.add(topic)
            self._send("caught-up", {"topic": topic, "head_seq": page.head_seq, "next_from_seq": page.cursor})

    def _tell(self, topic: str, shared: SharedPage) -> None:
        page = shared.page

        def move(seq: int) -> None:
            self._positions[topic] = Position(max(self._positions[topic].seq or 0, seq), page.timeline)

        if page.gap is not None:
            # The gap lies before what is left: records come after it.
            move(min(page.gap.end, page.cursor))
            self._send("tombstone", {"topic": topic, **tombstone(page.gap)})
        for row in page.records:
            move(row.seq)
            self.push(head("record", encode_id(self._positions)), shared.text(row, self._access), END)
        if page.records or page.gap is not None:
            self._told.discard(topic)
        move(page.cursor)

    def _gone(self, topic: str) -> None:
        self._positions[topic] = Position(None)
        self._listen_no_more(topic)
        self._send("topic-deleted", {"topic": topic})

    def _listen_no_more(self, topic: str) -> None:
        for listening in (self._watches.pop(topic, None), self._subscriptions.pop(topic, None)):
            if listening is not None:
                listening.close()

    async def _listen(self, topic: str, queue_id: int) -> None:
        """Listen for this topic, then read once more: what came before the LISTEN was not notified."""
        listener = get_listener(self._runners[topic].using)
        watch = self._watches[topic] = listener.watch([queue_id], lambda: self._topic_news(topic))
        deleted = f"d{queue_id}"
        subscription = self._subscriptions[topic] = listener.subscribe(
            JOBS, lambda payload: self._topic_news(topic) if payload in (None, deleted) else None
        )
        await watch.async_ready()
        await subscription.async_ready()
        self._fresh.add(topic)

    def _topic_news(self, topic: str) -> None:
        """A topic is worth a look. Called by the listener's thread."""
        with suppress(RuntimeError):  # the loop is closed, and its streams with it
            self._loop.call_soon_threadsafe(self._look_at, topic)

    def _look_at(self, topic: str) -> None:
        self._fresh.add(topic)
        self._event.set()

    def _wait_for_seal(self, topic: str, number: int) -> None:
        """Look again when a number is sealed."""
        if topic in self._sealing:
            return

        def done(_: object) -> None:
            self._sealing.pop(topic, None)
            self._look_at(topic)

        future = self._sealing[topic] = seal_watcher(self._runners[topic]).when(number)
        future.add_done_callback(done)
