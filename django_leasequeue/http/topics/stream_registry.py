"""All ``/work`` streams of this process: which hub feeds which, and what other processes tell them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from ...conf import process
from ...engine.topics.topics import TopicLook
from ...notify import get_listener
from ..running import RequestRunner
from .hub import WorkHub, WorkStream

#: Where deleted topics are announced.
TOPICS_CHANNEL = "leasequeue_topics"


class StreamRegistry:
    """All hubs of one event loop and database, and what they hear from other processes."""

    def __init__(self, using: str) -> None:
        self.channel = f"leasequeue_work_{secrets.token_hex(8)}"
        self._using = using
        self._hubs: dict[tuple[str, str], WorkHub] = {}
        self._of_stream: dict[int, WorkHub] = {}
        self._loop = asyncio.get_running_loop()
        self._subscriptions: list[Any] = []

    async def open(
        self,
        project: str,
        topic: str,
        found: TopicLook,
        *,
        node: str,
        size: int,
        lease_ms: int | None,
        recheck: Callable[[], Awaitable[Any]],
    ) -> WorkStream:
        """Return a stream of a queue; it is fed once it is iterated."""
        await self._listen()
        hub = self._hubs.get((project, topic))
        if hub is None or hub.queue_id != found.id:
            if hub is not None:
                hub.end(f"The topic {topic!r} was deleted and made anew.")
            hub = self._hubs[project, topic] = WorkHub(
                self, RequestRunner(self._using, threaded=False), project, topic, found
            )
        return WorkStream(hub, node, size, lease_ms, recheck)

    def enter(self, hub: WorkHub, stream: WorkStream) -> None:
        """A stream has begun."""
        self._of_stream[stream.number] = hub

    def leave(self, stream: WorkStream) -> None:
        """A stream is over."""
        self._of_stream.pop(stream.number, None)

    def close(self, hub: WorkHub) -> None:
        """A hub has no streams any more."""
        for place, found in list(self._hubs.items()):
            if found is hub:
                del self._hubs[place]

    async def _listen(self) -> None:
        """Listen from the first stream on, for as long as the process lives."""
        if self._subscriptions:
            return
        listener = get_listener(self._using)
        for channel, callback in ((self.channel, self._settled), (TOPICS_CHANNEL, self._deleted)):
            self._subscriptions.append(listener.subscribe(channel, self._in_loop(callback)))
        for subscription in self._subscriptions:
            await subscription.async_ready()

    def _in_loop(self, callback: Callable[[str | None], None]) -> Callable[[str | None], None]:
        def call(payload: str | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody streams there
                self._loop.call_soon_threadsafe(callback, payload)

        return call

    def _settled(self, payload: str | None) -> None:
        if payload is None:
            for hub in set(self._of_stream.values()):
                hub.settled(None)
        elif payload.isdecimal() and int(payload) in self._of_stream:
            self._of_stream[int(payload)].settled(int(payload))

    def _deleted(self, payload: str | None) -> None:
        for hub in set(self._of_stream.values()):
            if payload is None:
                hub.jobs_may_be_there()
            elif payload == f"d{hub.queue_id}":
                hub.end("The topic was deleted.")


_registries: process.PerLoop[dict[str, StreamRegistry]] = process.PerLoop(dict)


def stream_registry(using: str) -> StreamRegistry:
    """Return this event loop's registry of a database."""
    found = _registries.get()
    if using not in found:
        found[using] = StreamRegistry(using)
    return found[using]
