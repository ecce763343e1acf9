"""The home document and the health of the node."""

from __future__ import annotations

import re
from typing import Any

from django.http import HttpResponse
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from ... import engine
from .. import payload
from ..errors import RETRY
from .base import Refused, ZaqarView, endpoint


class HomeRenderer(BaseRenderer):
    media_type = "application/json-home"
    format = "json-home"


#: Link relation -> its template behind ``queues``, its methods, the full name of its ``limit``, whose bounds differ.
_RESOURCES = {
    "queues": ("{?marker,limit,detailed}", ["GET"], "queue_limit"),
    "queue": ("/{queue_name}", ["GET", "HEAD", "PUT", "DELETE"], ""),
    "queue-metadata": ("/{queue_name}/metadata", ["GET", "PUT"], ""),
    "queue-stats": ("/{queue_name}/stats", ["GET"], ""),
    "messages": ("/{queue_name}/messages{?marker,limit,echo,include_claimed}", ["GET"], "messages_limit"),
    "post-messages": ("/{queue_name}/messages", ["POST"], ""),
    "messages-by-id": ("/{queue_name}/messages{?ids}", ["GET", "DELETE"], ""),
    "message": ("/{queue_name}/messages/{message_id}{?claim_id}", ["GET", "DELETE"], ""),
    "claim": ("/{queue_name}/claims{?limit}", ["POST"], "claim_limit"),
    "claim-item": ("/{queue_name}/claims/{claim_id}", ["GET", "PATCH", "DELETE"], ""),
}


def document(root: str) -> dict[str, Any]:
    """Return the home document of an API that is mounted at ``root`` (``/v1``)."""
    resources = {}
    for relation, (path, allow, limit) in _RESOURCES.items():
        names = [name for part in re.findall(r"{(.+?)}", path) for name in part.lstrip("?").split(",")]
        hints: dict[str, Any] = {"allow": allow, "formats": {"application/json": {}}}
        if allow == ["POST"]:
            hints["accept-post"] = ["application/json"]
        resources[f"rel/{relation}"] = {
            "href-template": f"{root}/queues{path}",
            "href-vars": {name: f"param/{limit if name == 'limit' else name}" for name in names},
            "hints": hints,
        }
    return {"resources": resources}


class HomeView(ZaqarView):
    authentication_classes = []
    renderer_classes = [HomeRenderer, JSONRenderer]
    public = True

    @endpoint("home", "What this API offers.", answers={200: dict[str, Any]}, errors=(404,))
    async def get(self, request: Request) -> HttpResponse:
        """Return the home document, cacheable."""
        found = payload.dumps(document(request.path.rstrip("/")))
        headers = {"Cache-Control": f"max-age={self.limits.HOME_MAX_AGE}"}
        return HttpResponse(found, content_type=HomeRenderer.media_type, headers=headers)


class HealthView(ZaqarView):
    authentication_classes = []
    public = True

    @endpoint("health", "Can this node serve?", answers={204: None})
    async def get(self, request: Request) -> HttpResponse:
        """Ask the database."""
        try:
            await self.runner.run(engine.get("health"))
        except Exception as error:
            message = "The storage could not be reached."
            raise Refused(503, "Service temporarily unavailable", message, headers=RETRY) from error
        return self.empty()
