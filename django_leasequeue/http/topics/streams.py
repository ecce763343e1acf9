"""The event streams: jobs pushed to workers (``/work``), and records as they are written (``/watch``)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypedDict

from django.core import signing
from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.request import Request

from ... import conf
from ...conf import process
from ...engine.limits import MAX_BATCH, MAX_LEASE_MS, MIN_LEASE_MS
from ...engine.queues import routing
from ...engine.topics.topics import TopicLook, topics_there
from ...exceptions import QueueNotFound
from ...notify import JOBS, get_listener
from .. import payload
from ..access import READ, WRITE, Access
from ..auth import require
from ..errors import ApiError
from ..fields import Body, Boolean, Json
from ..schema import Parameter
from ..streaming import EventStreamResponse, Stream, require_stream
from ..views import ApiView, RequestRunner
from .base import NODE, TOKEN, TopicView, endpoint
from .fields import Starts
from .hub import WorkHub
from .watching import WatchStream, decode_id
from .work_stream import WorkStream


class StreamRegistry:
    """All hubs of one event loop and database, and what they hear from other processes."""

    def __init__(self, using: str) -> None:
        self.channel = f"leasequeue_work_{secrets.token_hex(8)}"
        self._using = using
        self.hubs: dict[tuple[str, str], WorkHub] = {}
        #: By the number of a stream that is fed.
        self.of_stream: dict[int, WorkHub] = {}
        self.subscriptions: list[Any] = []
        self._loop = asyncio.get_running_loop()

    async def hub(self, project: str, topic: str, found: TopicLook) -> WorkHub:
        if not self.subscriptions:  # from the first stream on, for as long as the process lives
            subscribe = get_listener(self._using).subscribe
            self.subscriptions = [
                subscribe(self.channel, partial(self._in_loop, self._settled, ("",))),
                subscribe(JOBS, partial(self._in_loop, self._changed, ("d", "l"))),
            ]
            for subscription in self.subscriptions:
                await subscription.async_ready()
        hub = self.hubs.get((project, topic))
        if hub is None or hub.queue_id != found.id:
            if hub is not None:
                hub.end(f"The topic {topic!r} was deleted and made anew.")
            runner = RequestRunner(self._using, threaded=False)
            hub = self.hubs[project, topic] = WorkHub(self, runner, project, topic, found)
        return hub

    def _in_loop(self, callback: Callable[[str | None], None], prefixes: tuple[str, ...], payload: str | None) -> None:
        if payload is None or payload.startswith(prefixes):
            with suppress(RuntimeError):  # the loop is closed, and its streams with it
                self._loop.call_soon_threadsafe(callback, payload)

    def _settled(self, payload: str | None) -> None:
        if payload is None:
            for hub in set(self.of_stream.values()):
                hub.settled(None)
        elif payload.isdecimal() and int(payload) in self.of_stream:
            self.of_stream[int(payload)].settled(int(payload))

    def _changed(self, payload: str | None) -> None:
        for hub in set(self.of_stream.values()):
            if payload is None:
                hub.jobs_may_be_there()
            if payload in (None, f"l{hub.queue_id}"):
                hub.leases_taken()
            elif payload == f"d{hub.queue_id}":
                hub.end("The topic was deleted.")


_registries: process.PerLoop[dict[str, StreamRegistry]] = process.PerLoop(dict)

_PLACES: Json = {"type": "integer", "minimum": 1, "default": 1}
_MAX = Parameter("max", _PLACES, f"Jobs at once, at most {MAX_BATCH:,}.", most=lambda: MAX_BATCH)
_LEASE_MS = Parameter(
    "lease_ms", {"type": "integer"}, "Length of the leases; default: the topic's.", most=lambda: MAX_LEASE_MS
)


def _answer(request: Request, stream: Stream, access: Access) -> EventStreamResponse:
    transport = getattr(request._request, "scope", {}).get(payload.TRANSPORT)
    return EventStreamResponse(stream.frames(access.who, transport))


class WorkView(TopicView):
    token_in_query = True
    http_method_names = ["get"]

    @endpoint(
        "streamJobs",
        "Jobs as server-sent events",
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
        errors={404: ["topic_not_found"], 406: ["not_acceptable"], 409: ["not_a_queue"]},
        parameters=[NODE, _MAX, _LEASE_MS, TOKEN],
    )
    async def get(self, request: Request, topic: str) -> StreamingHttpResponse:
        require_stream(request._request, self.access.who)
        node, size = self.node, self.number(_MAX)
        lease_ms = max(MIN_LEASE_MS, self.number(_LEASE_MS)) if _LEASE_MS.name in request.GET else None
        found = await self.look(topic, leases=True)
        registries, using = _registries.get(), self.runner.using
        registry = registries[using] = registries.get(using) or StreamRegistry(using)
        hub = await registry.hub(self.project, topic, found)
        stream = WorkStream(hub, node, size, lease_ms, partial(self.recheck, (topic,)), self.access)
        return _answer(request, stream, self.access)


_SALT = "leasequeue.watch"
#: Characters of a watch's id: it is part of an address, and servers and proxies allow about 8 KiB of those.
MAX_WID = 6_000
_WID = Parameter("wid", {"type": "string", "maxLength": MAX_WID}, "From `POST /watch`.", where="path")
_LAST_EVENT = Parameter("Last-Event-ID", {"type": "string"}, "Where to go on.", where="header")


class WatchBody(Body):
    """What to watch."""

    topics = Starts()
    reset = Boolean(default=False, help_text="After a failover that may have lost records go on from what is kept.")


class WatchCreated(TypedDict):
    """Where the event stream is."""

    wid: str
    stream_url: str


class WatchesView(ApiView):
    """Prepare a watch. Nothing is stored: its id holds what it is about, signed."""

    @endpoint(
        "createWatch",
        "Prepare a stream of records of some topics",
        scopes=[READ],
        description=lambda: f"Open `stream_url` within {conf.settings.API.WATCH_SECONDS:,} s, as often as you like.",
        body=WatchBody,
        answers={200: WatchCreated},
        errors={404: ["topic_not_found"]},
        examples={
            "Two topics": (
                {"topics": {"orders": 0, "payments": 480101}},
                {
                    "wid": "eyJ0Ijp7Im9yZGVycyI6MH19:1uX",
                    "stream_url": "/v0/watch/eyJ0Ijp7Im9yZGVycyI6MH19:1uX",
                    "performance": {"server_total_ms": 1.1},
                },
            )
        },
    )
    async def post(self, request: Request) -> HttpResponse:
        body = await self.body()
        topics: dict[str, int] = body["topics"]
        homes: dict[str, list[str]] = {}
        for topic in topics:
            require(self.access, frozenset(), topic)
            homes.setdefault(routing.alias_of(self.project, topic), []).append(topic)
        for alias, names in homes.items():
            there = await self.runner.on(alias).run(topics_there(names, project=self.project))
            for topic in names:
                if topic not in there:
                    raise QueueNotFound(topic, self.project)
        what = {"t": topics, "p": self.project, **({"r": True} if body["reset"] else {})}
        wid = signing.dumps(what, salt=_SALT, compress=True)
        if len(wid) > MAX_WID:
            raise ApiError(400, "invalid_request", "topics: these names are too long for one watch. Open several.")
        return self.answer(WatchCreated(wid=wid, stream_url=f"{request.path}/{wid}"))


class WatchStreamView(ApiView):
    token_in_query = True
    http_method_names = ["get"]

    @endpoint(
        "streamRecords",
        "Records as server-sent events",
        scopes=[READ],
        description=(
            "Events: `record` (a record with its `topic`), `caught-up` (`topic`, `head_seq`, `next_from_seq`), "
            "`tombstone` (`topic` and what a cap or the TTL took away), `topic-deleted`, `reset` (`topic`, "
            "`next_from_seq`: with `reset` the stream goes on from there where a failover may have lost records, else "
            "it ends with the error 409), `error` (`{code, message}`, "
            "the stream ends). Every event has an `id`; sent back as `Last-Event-ID` the stream goes on behind it."
        ),
        answers={200: "`retry: 2000`, a heartbeat, then events."},
        errors={404: ["not_found"], 406: ["not_acceptable"]},
        parameters=[_WID, _LAST_EVENT, TOKEN],
    )
    async def get(self, request: Request, wid: str) -> StreamingHttpResponse:
        require_stream(request._request, self.access.who)
        try:
            watch: dict[str, Any] = signing.loads(wid, salt=_SALT, max_age=conf.settings.API.WATCH_SECONDS)
        except signing.BadSignature:
            watch = {}
        if watch.get("p") != self.project:
            raise ApiError(404, "not_found", "This watch is unknown or too old: POST to /watch for a new one.")
        topics: dict[str, int] = watch["t"]
        for topic in topics:
            require(self.access, frozenset(), topic)
        runners = {topic: self.runner.on(routing.alias_of(self.project, topic)) for topic in topics}
        positions = decode_id(request.META.get("HTTP_LAST_EVENT_ID", ""), topics)
        recheck = partial(self.recheck, tuple(topics))
        stream = WatchStream(runners, self.project, positions, recheck, self.access, reset=watch.get("r", False))
        return _answer(request, stream, self.access)
