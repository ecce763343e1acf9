"""Watching topics: say which, then open the event stream."""

from __future__ import annotations

from functools import partial
from typing import Any, TypedDict

from django.core import signing
from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.request import Request

from ... import conf
from ...engine.queues import routing
from ...engine.topics.topics import topics_there
from ...exceptions import QueueNotFound
from ..access import READ
from ..auth import require
from ..errors import ApiError
from ..fields import Body, Boolean
from ..running import RequestRunner
from ..schema import Parameter
from ..streaming import EventStreamResponse, require_stream
from ..views import ApiView
from .base import TOKEN, endpoint
from .fields import Starts
from .watching import WatchStream, decode_id

_TAG = "streams"
_SALT = "leasequeue.watch"
#: Characters of a watch's id: it is part of an address, and servers and proxies allow about 8 KiB of those.
MAX_WID = 6_000


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
        tag=_TAG,
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
            runner = RequestRunner(alias, threaded=self.runner.threaded)
            there = await runner.run(topics_there(names, project=self.project))
            for topic in names:
                if topic not in there:
                    raise QueueNotFound(topic, self.project)
        what = {"t": topics, "p": self.project, **({"r": True} if body["reset"] else {})}
        wid = signing.dumps(what, salt=_SALT, compress=True)
        if len(wid) > MAX_WID:
            raise ApiError(400, "invalid_request", "topics: these names are too long for one watch. Open several.")
        return self.answer(WatchCreated(wid=wid, stream_url=f"{request.path}/{wid}"))


class WatchStreamView(ApiView):
    """The event stream of a watch."""

    token_in_query = True
    http_method_names = ["get"]

    @endpoint(
        "streamRecords",
        "Records as server-sent events",
        tag=_TAG,
        scopes=[READ],
        description=(
            "Events: `record` (a record with its `topic`), `caught-up` (`topic`, `head_seq`, `next_from_seq`), "
            "`tombstone` (`topic` and what a cap or the TTL took away), `topic-deleted`, `reset` (`topic`, "
            "`next_from_seq`: with `reset` the stream goes on from there where a failover may have lost records, else "
            "it ends with the error 409), `error` (`{code, message}`, "
            "the stream ends). Every event has an `id`; sent back as `Last-Event-ID` the stream goes on behind it."
        ),
        answers={200: "`retry: 2000`, a heartbeat, then events."},
        errors={400: ["invalid_request"], 404: ["not_found"], 406: ["not_acceptable"]},
        parameters=[
            Parameter("wid", {"type": "string", "maxLength": MAX_WID}, "From `POST /watch`.", where="path"),
            Parameter("Last-Event-ID", {"type": "string"}, "Where to go on.", where="header"),
            TOKEN,
        ],
    )
    async def get(self, request: Request, wid: str) -> StreamingHttpResponse:
        require_stream(request._request, self.access.who)
        topics, reset = self._watch(wid)
        for topic in topics:
            require(self.access, frozenset(), topic)
        runners = {topic: RequestRunner(routing.alias_of(self.project, topic), threaded=False) for topic in topics}
        last = request.META.get("HTTP_LAST_EVENT_ID")
        positions = decode_id(last or "", topics)
        stream = WatchStream(runners, self.project, positions, partial(self.recheck, tuple(topics)), reset=reset)
        return EventStreamResponse(stream.frames(self.access.who))

    def _watch(self, wid: str) -> tuple[dict[str, int], bool]:
        try:
            found: dict[str, Any] = signing.loads(wid, salt=_SALT, max_age=conf.settings.API.WATCH_SECONDS)
        except signing.BadSignature:
            found = {}
        if found.get("p") != self.project:
            raise ApiError(404, "not_found", "This watch is unknown or too old: POST to /watch for a new one.")
        return found["t"], found.get("r", False)
