"""``/work``: jobs pushed to a worker as server-sent events, and the registry of these streams in a process."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from django.http import StreamingHttpResponse
from rest_framework.request import Request

from ...conf import process
from ...engine.limits import MAX_BATCH, MAX_LEASE_MS, MIN_LEASE_MS
from ...engine.topics.topics import TopicLook
from ...notify import get_listener
from ...notify.session import JOBS
from ..access import READ, WRITE
from ..running import RequestRunner
from ..schema import Parameter
from ..streaming import EventStreamResponse, require_stream
from .base import NODE, TOKEN, TopicView, endpoint
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

    def hears(self) -> bool:
        """Whether notices arrive: there is a LISTEN connection."""
        return all(subscription.live for subscription in self._subscriptions)

    async def _listen(self) -> None:
        """Listen from the first stream on, for as long as the process lives."""
        if self._subscriptions:
            return
        listener = get_listener(self._using)
        for channel, callback, prefix in (
            (self.channel, self._settled, ""),
            (TOPICS_CHANNEL, self._deleted, ""),
            (JOBS, self._taken, "l"),
        ):
            self._subscriptions.append(listener.subscribe(channel, self._in_loop(callback, prefix)))
        for subscription in self._subscriptions:
            await subscription.async_ready()

    def _in_loop(self, callback: Callable[[str | None], None], prefix: str) -> Callable[[str | None], None]:
        def call(payload: str | None) -> None:
            if payload is None or payload.startswith(prefix):
                with suppress(RuntimeError):  # the loop is closed, and its streams with it
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

    def _taken(self, payload: str | None) -> None:
        for hub in set(self._of_stream.values()):
            if payload is None or payload == f"l{hub.queue_id}":
                hub.leases_taken()


_registries: process.PerLoop[dict[str, StreamRegistry]] = process.PerLoop(dict)


def stream_registry(using: str) -> StreamRegistry:
    """Return this event loop's registry of a database."""
    found = _registries.get()
    if using not in found:
        found[using] = StreamRegistry(using)
    return found[using]


_MAX = Parameter(
    "max",
    {"type": "integer", "minimum": 1, "default": 1},
    f"Jobs at once, at most {MAX_BATCH:,}.",
    most=lambda: MAX_BATCH,
)
_LEASE_MS = Parameter(
    "lease_ms", {"type": "integer"}, "Length of the leases; default: the topic's.", most=lambda: MAX_LEASE_MS
)


class WorkView(TopicView):
    """Jobs as they come, as many at once as the worker takes."""

    token_in_query = True
    http_method_names = ["get"]

    @endpoint(
        "streamJobs",
        "Jobs as server-sent events",
        tag="streams",
        scopes=[READ, WRITE],
        description=(
            "At most `max` jobs are leased to this connection at once; each ack or nack, sent to its own endpoint, "
            "makes room for the next. `event: job` has `id: <seq>` and a claimed job with its `topic` as data; "
            "`event: cancel` has `{topic, $seq, lease_id}` of a job whose workflow was cancelled: stop it and nack it; "
            "`event: error` has `{code, message}` and ends the stream, except 429: requests of the key are refused "
            "for `retry_after_ms`, and no job comes meanwhile; `: hb` is a sign of life. When the connection "
            "drops, all that it was given and has not settled is released at once."
        ),
        answers={200: "`retry: 2000`, a heartbeat, then events: `job`, `cancel`, `error`."},
        errors={400: ["invalid_request"], 404: ["topic_not_found"], 406: ["not_acceptable"], 409: ["not_a_queue"]},
        parameters=[NODE, _MAX, _LEASE_MS, TOKEN],
    )
    async def get(self, request: Request, topic: str) -> StreamingHttpResponse:
        require_stream(request._request, self.access.who)
        node, size = self.node, self.number(_MAX)
        lease_ms = max(MIN_LEASE_MS, self.number(_LEASE_MS)) if _LEASE_MS.name in request.GET else None
        found = await self.look(topic, leases=True)
        stream = await stream_registry(self.runner.using).open(
            self.project, topic, found, node=node, size=size, lease_ms=lease_ms, recheck=partial(self.recheck, (topic,))
        )
        return EventStreamResponse(stream.frames(self.access.who))
