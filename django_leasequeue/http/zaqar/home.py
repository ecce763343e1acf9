"""The home document and the health of the node."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from ... import engine
from .. import payload
from ..errors import RETRY
from .base import Refused, ZaqarView, endpoint


class HomeRenderer(BaseRenderer):
    """The media type of the home document, for what a client accepts."""

    media_type = "application/json-home"
    format = "json-home"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return payload.dumps(data)


def _resource(
    path: str, variables: list[str], allow: list[str], *, posts: bool = False, limit: str = "limit"
) -> dict[str, Any]:
    """Describe a resource; ``limit`` is the full name of its variable ``limit``, whose bounds differ."""
    hints: dict[str, Any] = {"allow": allow, "formats": {"application/json": {}}}
    if posts:
        hints["accept-post"] = ["application/json"]
    names = {name: f"param/{limit if name == 'limit' else name}" for name in variables}
    return {"href-template": path, "href-vars": names, "hints": hints}


def document(root: str) -> dict[str, Any]:
    """Return the home document of a door that is mounted at ``root`` (``/v1``)."""
    queue = f"{root}/queues/{{queue_name}}"
    return {
        "resources": {
            "rel/queues": _resource(
                f"{root}/queues{{?marker,limit,detailed}}",
                ["marker", "limit", "detailed"],
                ["GET"],
                limit="queue_limit",
            ),
            "rel/queue": _resource(queue, ["queue_name"], ["GET", "HEAD", "PUT", "DELETE"]),
            "rel/queue-metadata": _resource(f"{queue}/metadata", ["queue_name"], ["GET", "PUT"]),
            "rel/queue-stats": _resource(f"{queue}/stats", ["queue_name"], ["GET"]),
            "rel/messages": _resource(
                f"{queue}/messages{{?marker,limit,echo,include_claimed}}",
                ["queue_name", "marker", "limit", "echo", "include_claimed"],
                ["GET"],
                limit="messages_limit",
            ),
            "rel/post-messages": _resource(f"{queue}/messages", ["queue_name"], ["POST"], posts=True),
            "rel/messages-by-id": _resource(f"{queue}/messages{{?ids}}", ["queue_name", "ids"], ["GET", "DELETE"]),
            "rel/message": _resource(
                f"{queue}/messages/{{message_id}}{{?claim_id}}",
                ["queue_name", "message_id", "claim_id"],
                ["GET", "DELETE"],
            ),
            "rel/claim": _resource(
                f"{queue}/claims{{?limit}}", ["queue_name", "limit"], ["POST"], posts=True, limit="claim_limit"
            ),
            "rel/claim-item": _resource(
                f"{queue}/claims/{{claim_id}}", ["queue_name", "claim_id"], ["GET", "PATCH", "DELETE"]
            ),
        }
    }


class HomeView(ZaqarView):
    """``GET /v1``: everything that this door offers."""

    authentication_classes = []
    renderer_classes = [HomeRenderer, JSONRenderer]
    public = True

    @endpoint("home", "What this door offers.", answers={200: dict[str, Any]})
    async def get(self, request: Request) -> HttpResponse:
        """Return the home document, cacheable."""
        return HttpResponse(
            payload.dumps(document(request.path.rstrip("/"))),
            content_type=HomeRenderer.media_type,
            headers={"Cache-Control": f"max-age={self.limits.HOME_MAX_AGE}"},
        )


class HealthView(ZaqarView):
    """``GET /v1/health``: 204, or 503 when the database cannot be reached."""

    authentication_classes = []
    public = True

    @endpoint("health", "Can this node serve?", answers={204: None})
    async def get(self, request: Request) -> HttpResponse:
        """Ask the database."""
        try:
            await self.run(engine.get("health"))
        except Exception as error:
            message = "The storage could not be reached."
            raise Refused(503, "Service temporarily unavailable", message, headers=RETRY) from error
        return self.empty()

    head = get
