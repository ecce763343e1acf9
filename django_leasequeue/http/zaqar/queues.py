"""Queues: create, list, exists, delete, metadata, stats."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from django.http import HttpResponse
from rest_framework.request import Request

from ... import engine
from ...engine.queues.presets import Definition
from ...engine.queues.queues import make_defined, set_metadata
from ...engine.topics import messages
from ..access import ADMIN, DELETE, READ
from ..errors import RETRY
from ..views import json_response
from .base import (
    BOOLEAN,
    LINKS,
    MARKER,
    Refused,
    ZaqarView,
    bad,
    endpoint,
    limit,
    limit_of,
    message_path,
    next_link,
    queue_path,
)


class ListedQueue(TypedDict):
    name: str
    href: str
    metadata: NotRequired[dict[str, Any]]


class Queues(TypedDict):
    links: Annotated[Any, LINKS]
    queues: list[ListedQueue]


class End(TypedDict):
    href: NotRequired[str]
    age: NotRequired[int]
    created: NotRequired[Annotated[str, {"format": "date-time"}]]


class Counters(TypedDict):
    free: int
    claimed: int
    total: int
    oldest: NotRequired[End]
    newest: NotRequired[End]


class Stats(TypedDict):
    messages: Counters


class QueuesView(ZaqarView):
    @endpoint(
        "list_queues",
        "List queues by name.",
        scopes=[READ],
        answers={200: Queues, 204: None},
        query={"marker": MARKER, "limit": limit("MAX_QUEUES_PER_PAGE"), "detailed": (BOOLEAN, "With metadata.")},
    )
    async def get(self, request: Request) -> HttpResponse:
        """List queues by name."""
        size, detailed = self.page(self.limits.MAX_QUEUES_PER_PAGE), self.switched_on("detailed")
        after = request.GET.get("marker", "")
        if "\x00" in after or len(after) > self.limits.MAX_QUEUE_NAME_BYTES:
            raise bad("The marker must be the one that the list before this gave.")
        lines, away = await self.list_queues(size, after=after, type="queue")
        if away:  # a list has no place to say that a part is missing
            raise Refused(503, "Service temporarily unavailable", "A database of queues cannot be reached.", RETRY)
        if not lines:
            return self.empty()
        found: list[Any] = [
            {"name": line.name, "href": queue_path(line.name), **({"metadata": line.metadata} if detailed else {})}
            for line in lines
        ]
        links = next_link(request.path, {"limit": str(size), "detailed": str(detailed).lower()}, lines[-1].name)
        where = {"Content-Location": request.get_full_path()}
        return json_response(Queues(links=links, queues=found), headers=where)


class QueueView(ZaqarView):
    @endpoint(
        "create_queue",
        "Create a queue.",
        description=lambda: (
            f"One that is there stays as it is. A name has at most {limit_of('MAX_QUEUE_NAME_BYTES')():,} characters."
        ),
        scopes=[ADMIN],
        answers={201: None, 204: None},
        errors=(404,),  # a log has that name
    )
    async def put(self, request: Request, queue: str) -> HttpResponse:
        created = await self.runner.run(make_defined(self.project, queue, Definition("zaqar")))
        if not created:
            await self.queue(queue)
        return self.empty(status=201 if created else 204, headers={"Location": queue_path(queue)})

    @endpoint("queue_exists", "Is the queue there?", scopes=[READ], answers={204: None}, errors=(404,))
    async def get(self, request: Request, queue: str) -> HttpResponse:
        """Say whether it is there: 204 or 404."""
        await self.queue(queue)
        return self.empty(headers={"Content-Location": queue_path(queue)})

    @endpoint("delete_queue", "Delete a queue with its messages.", scopes=[DELETE], answers={204: None})
    async def delete(self, request: Request, queue: str) -> HttpResponse:
        """Delete a queue with its messages."""
        if await self.find(queue) is not None:
            await self.runner.run(engine.delete(queue, project=self.project))
        return self.empty()


class MetadataView(ZaqarView):
    @endpoint("get_metadata", "Read the metadata.", scopes=[READ], answers={200: dict[str, Any]}, errors=(404,))
    async def get(self, request: Request, queue: str) -> HttpResponse:
        """Return the metadata as it was put."""
        info = await self.queue(queue)
        return json_response(info.config["metadata"], headers={"Content-Location": request.path})

    @endpoint(
        "set_metadata",
        "Replace the metadata.",
        description=lambda: f"The body has at most {limit_of('MAX_METADATA_SIZE')():,} characters.",
        body={"type": "object", "propertyNames": {"pattern": "^([^_]|$)"}},
        scopes=[ADMIN],
        answers={204: None},
        errors=(404,),
    )
    async def put(self, request: Request, queue: str) -> HttpResponse:
        await self.queue(queue)
        document = await self.fields("The metadata must be a JSON object.")
        reserved = [name for name in document if name.startswith("_")]
        if reserved:
            raise bad(f"Names in the metadata that begin with '_' are reserved; there is {reserved[0][:80]!r}.")
        await self.runner.run(set_metadata(queue, document, project=self.project))
        return self.empty(headers={"Location": request.path})


class StatsView(ZaqarView):
    @endpoint("queue_stats", "Count messages.", scopes=[READ], answers={200: Stats}, errors=(404,))
    async def get(self, request: Request, queue: str) -> HttpResponse:
        """Count free and claimed messages as they are now, whether or not expired claims were swept."""
        info = await self.queue(queue)
        counted = await self.runner.run(engine.counts(queue, project=self.project))
        total = counted.ready + counted.in_flight
        stats: dict[str, Any] = {"free": counted.ready, "claimed": counted.in_flight, "total": total}
        ends = await self.runner.run(messages.get_ends(info.id)) if total else None
        if ends is not None:
            for name, end in zip(("oldest", "newest"), ends, strict=True):
                created = end.created_at.strftime("%Y-%m-%dT%H:%M:%SZ")
                stats[name] = {"href": message_path(queue, info.id, end.seq), "age": end.age, "created": created}
        return json_response({"messages": stats}, headers={"Content-Location": request.path})
