"""Reading records as they are written: reads that wait for the next one, and the streams of a watch."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from django.utils.http import int_to_base36 as base36

from ...conf import process
from ...engine import Operation
from ...engine.limits import MAX_SEQ
from ...engine.outage import passes
from ...engine.topics.log import LogPage, read, seal, sealer
from ...exceptions import LogTruncated, QueueNotFound
from ...notify import Subscription, Watch, get_listener, waking
from ..errors import logger
from ..streaming import Stream, frame, in_background, outage, within
from ..views import RequestRunner
from .base import record, tombstone

#: Where deleted topics are announced.
TOPICS_CHANNEL = "leasequeue_topics"
#: Seconds between looks for a sealed number: doubled from, up to.
FIRST_LOOK, LAST_LOOK = 0.002, 0.25


class SealWatcher:
    """Watches the sealed number of one database while readers wait for it."""

    def __init__(self, runner: RequestRunner) -> None:
        self._runner = runner
        self._seals = sealer(runner.using)
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._running = False

    def when(self, number: int) -> asyncio.Future[None]:
        """Return a future that is done when ``number`` is sealed; cancel it to stop waiting."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = number
        if not self._running:
            self._running = True
            in_background(self._run())
        return future

    async def _run(self) -> None:
        step = FIRST_LOOK
        sealed = self._seals.sealed
        try:
            while self._waiting:
                await asyncio.sleep(step)
                step = min(step * 2, LAST_LOOK)
                before, sealed = sealed, await self._runner.run(seal(self._seals))
                if sealed > before:
                    step = FIRST_LOOK
                for future, number in list(self._waiting.items()):
                    if number <= sealed or future.done():
                        del self._waiting[future]
                        _done(future)
        except Exception as error:  # noqa: BLE001  (most often the database is gone: its stack says nothing more)
            reason = " ".join(str(error).split())
            logger.warning("Looking for sealed numbers ended; readers look themselves, and begin it anew: %s", reason)
        finally:
            self._running = False
            # If this ends because the database is gone: those that wait read, and get the error.
            for future in self._waiting:
                _done(future)
            self._waiting.clear()


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_watchers: process.PerLoop[dict[tuple[str, bool], SealWatcher]] = process.PerLoop(dict)


def seal_watcher(runner: RequestRunner) -> SealWatcher:
    """Return this loop's watcher of the runner's database."""
    found = _watchers.get()
    place = (runner.using, runner.threaded)
    if place not in found:
        found[place] = SealWatcher(runner)
    return found[place]


#: Seconds that a read which does not wait gives other transactions to end: most are over in a moment.
PATIENCE = 0.05
#: Fallback polling interval of a waiting reader, in seconds.
READ_BACKSTOP = 5.0


def unsealed(page: LogPage, after: int) -> bool:
    """Return whether there is something behind the cursor that cannot be read yet."""
    return not page.records and page.gap is None and not page.sealed and page.head_seq > max(after, page.cursor)


async def read_page(
    runner: RequestRunner, reads: Callable[..., Operation[LogPage]], after: int, timeline: int | None, wait: float
) -> LogPage:
    """Return a page of a topic (``log.read``); wait up to ``wait`` seconds for a record if there is none."""

    async def look(after: int, timeline: int | None) -> LogPage:
        return await runner.run(reads(after=after, timeline=timeline))

    page = await look(after, timeline)
    if unsealed(page, after):
        await _wait_for_seal(runner, page.head_seq, PATIENCE)
        page = await look(after, timeline)
    if not wait or page.records or page.gap is not None or page.more or page.reset_to is not None:
        return page
    ends = time.monotonic() + wait
    async with waking(get_listener(runner.using), [page.queue_id]) as sleep:
        while True:
            page = await look(after, page.timeline)
            left = ends - time.monotonic()
            if page.records or page.gap is not None or page.reset_to is not None or left <= 0:
                return page
            if unsealed(page, after):
                await _wait_for_seal(runner, page.head_seq, min(left, READ_BACKSTOP))
            else:
                await sleep(min(left, READ_BACKSTOP))
            after = page.cursor


async def _wait_for_seal(runner: RequestRunner, number: int, timeout: float) -> None:  # noqa: ASYNC109  (how patient the caller is)
    future = seal_watcher(runner).when(number)
    try:
        await within(timeout, future)
    finally:
        future.cancel()


PAGE = 256
#: Seconds between reads of a topic without a notification: usually, and while there is no LISTEN connection.
BACKSTOP, POLL = 10.0, 0.5
#: Seconds between looks while the database is away.
RETRY = 0.5
#: In a frame's id: a topic that is gone.
GONE = "-"

_reads: process.PerLoop[dict[tuple[Any, ...], asyncio.Task[LogPage]]] = process.PerLoop(dict)


class Position(NamedTuple):
    """The last number read in a topic (``None``: that is gone), and the server's timeline then, if it is known."""

    seq: int | None
    timeline: int | None = None


#: What a position is in the id of a frame.
_POSITION = re.compile(r"-|([0-9a-z]{1,13})(?:_([0-9a-z]{1,7}))?")


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
    if len(positions) != len(topics) or any((seq or 0) > MAX_SEQ for seq, _ in positions):
        return {topic: Position(seq) for topic, seq in topics.items()}
    return dict(zip(sorted(topics), positions, strict=True))


async def shared_read(runner: RequestRunner, project: str, topic: str, position: Position, reset: bool) -> LogPage:
    """Read a page; readers that stand at the same place share one statement."""
    running = _reads.get()
    place = (runner.using, project, topic, position, reset)
    task = running.get(place)
    if task is None:
        after, timeline, seals = position.seq or 0, position.timeline, sealer(runner.using)
        operation = read(topic, project=project, after=after, size=PAGE, timeline=timeline, reset=reset, seals=seals)
        task = running[place] = in_background(runner.run(operation))

        def done(task: asyncio.Task[LogPage]) -> None:
            running.pop(place, None)
            if not task.cancelled():
                task.exception()  # raised in those that still wait; not an unretrieved one

        task.add_done_callback(done)
    # The end of one reader must not end the read of the others.
    return await asyncio.shield(task)


class WatchStream(Stream):
    """One reader of some topics; where a failover may have lost records it ends, or with ``reset`` goes on."""

    def __init__(
        self,
        runners: Mapping[str, RequestRunner],
        project: str,
        positions: Mapping[str, Position],
        recheck: Callable[[], Awaitable[Any]],
        *,
        reset: bool = False,
    ) -> None:
        super().__init__(recheck)
        self._runners = runners
        self._project = project
        self._positions = dict(positions)
        self._reset = reset
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        #: Topics to look at.
        self._fresh = self._there()
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
        try:
            page = await shared_read(self._runners[topic], self._project, topic, position, self._reset)
        except QueueNotFound:
            self._gone(topic)
            return
        if self._ids.setdefault(topic, page.queue_id) != page.queue_id:
            self._gone(topic)  # and made anew: another topic of that name
            return
        if page.reset_to is not None:
            self._positions[topic] = Position(page.reset_to, page.timeline)
            self._told.discard(topic)
            self._send("reset", {"topic": topic, "next_from_seq": page.reset_to, "timeline": page.timeline})
        self._tell(topic, page)
        if page.more:
            self._fresh.add(topic)
        elif topic not in self._watches:
            await self._listen(topic, page.queue_id)
        elif not page.sealed and page.head_seq > page.cursor:
            self._wait_for_seal(topic, page.head_seq)
        elif topic not in self._told:
            self._told.add(topic)
            self._send("caught-up", {"topic": topic, "head_seq": page.head_seq, "next_from_seq": page.cursor})

    def _tell(self, topic: str, page: LogPage) -> None:
        def move(seq: int) -> None:
            self._positions[topic] = Position(max(self._positions[topic].seq or 0, seq), page.timeline)

        if page.gap is not None:
            # The gap lies before what is left: records come after it.
            move(min(page.gap.end, page.cursor))
            self._send("tombstone", {"topic": topic, **tombstone(page.gap)})
        for row in page.records:
            move(row.seq)
            self._send("record", {"topic": topic, **record(row)})
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
            TOPICS_CHANNEL, lambda payload: self._topic_news(topic) if payload in (None, deleted) else None
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
