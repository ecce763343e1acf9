"""``/work``: jobs pushed to a worker as server-sent events."""

from __future__ import annotations

from functools import partial

from django.http import StreamingHttpResponse
from rest_framework.request import Request

from ...engine.limits import MAX_BATCH, MAX_LEASE_MS, MAX_NODE_BYTES, MIN_LEASE_MS
from ..access import READ, WRITE
from ..errors import ApiError
from ..fields import storable
from ..schema import Parameter, describe
from ..streaming import EventStreamResponse, require_stream
from .base import TopicView
from .shapes import TOPIC
from .stream_registry import stream_registry

_TOKEN = Parameter("token", {"type": "string"}, "The key, for browsers only: addresses end up in logs.")


class WorkView(TopicView):
    """Jobs as they come, as many at once as the worker takes."""

    required_scopes = {"GET": frozenset({READ, WRITE})}
    token_in_query = True
    http_method_names = ["get"]

    @describe(
        "streamJobs",
        "Jobs as server-sent events",
        tag="streams",
        description=(
            "At most `max` jobs are leased to this connection at once; each ack or nack, sent to its own endpoint, "
            "makes room for the next. `event: job` has `id: <seq>` and a claimed job with its `topic` as data; "
            "`event: error` has `{code, message}` and ends the stream; `: hb` is a sign of life. When the connection "
            "drops, all that it was given and has not settled is released at once."
        ),
        answers={200: "`retry: 2000`, a heartbeat, then events: `job`, `error`."},
        errors={
            400: ["invalid_request"],
            404: ["topic_not_found"],
            406: ["not_acceptable"],
            409: ["not_a_queue"],
        },
        parameters=[
            TOPIC,
            Parameter(
                "node", {"type": "string", "minLength": 1, "maxLength": 128}, "The worker's name.", required=True
            ),
            Parameter("max", {"type": "integer", "minimum": 1, "default": 1}, f"Jobs at once, at most {MAX_BATCH:,}."),
            Parameter("lease_ms", {"type": "integer"}, "Length of the leases; default: the topic's."),
            _TOKEN,
        ],
    )
    async def get(self, request: Request, topic: str) -> StreamingHttpResponse:
        require_stream(request._request, self.access.who)
        node = request.GET.get("node", "")
        if not 0 < storable(node) <= MAX_NODE_BYTES:
            raise ApiError(400, "invalid_request", f"node must be the worker's name, 1 to {MAX_NODE_BYTES} bytes.")
        size = self.number("max", 1, 1, MAX_BATCH) or 1
        lease_ms = self.number("lease_ms", None, MIN_LEASE_MS, MAX_LEASE_MS, clamp_low=True)
        found = await self.look(topic, leases=True)
        stream = await stream_registry(self.runner.using).open(
            self.project, topic, found, node=node, size=size, lease_ms=lease_ms, recheck=partial(self.recheck, (topic,))
        )
        return EventStreamResponse(stream.frames(self.access.who))
