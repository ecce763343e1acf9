"""Queues: create, list, exists, delete, metadata, stats; and the opaque ids and links of what is in them.

An id is a number (of a message, a claim, a marker), enciphered with a key made of ``SECRET_KEY``, what it stands for
and the queue, and a proof that it is ours. It tells neither how many there are nor anything of another queue.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import Annotated, Any, NotRequired, TypedDict
from urllib.parse import quote, urlencode

from django.conf import settings
from django.http import HttpResponse
from django.urls import reverse
from rest_framework.request import Request

from ... import engine
from ...engine.queues.queues import ensure, set_metadata
from ...engine.topics import messages
from ..access import ADMIN, DELETE, READ
from ..errors import RETRY
from ..views import json_response
from .base import BOOLEAN, LINKS, MARKER, Refused, ZaqarView, bad, endpoint, limit, limit_of

_HALF = 0xFFFFFFFF
_PROOF_BYTES = 4


@lru_cache(maxsize=1024)
def _key(secret: str, kind: str, queue_id: int) -> bytes:
    return hashlib.sha256(f"leasequeue.zaqar:{kind}:{queue_id}:{secret}".encode()).digest()


def _round(key: bytes, number: int, half: int) -> int:
    salt = bytes([number]) * 8
    return int.from_bytes(hashlib.blake2s(half.to_bytes(4, "big"), key=key, salt=salt, digest_size=4).digest())


def _encipher(key: bytes, value: int) -> int:
    left, right = value >> 32, value & _HALF
    for number in range(4):
        left, right = right, left ^ _round(key, number, right)
    return left << 32 | right


def _decipher(key: bytes, value: int) -> int:
    left, right = value >> 32, value & _HALF
    for number in reversed(range(4)):
        left, right = right ^ _round(key, number, left), left
    return left << 32 | right


def _proof(key: bytes, value: int) -> str:
    return hmac.new(key, value.to_bytes(8, "big"), "sha256").digest()[:_PROOF_BYTES].hex()


def encode_id(kind: str, queue_id: int, number: int) -> str:
    """Return a number's opaque form for a kind (``message``, ``claim``, ``marker``): 24 hex digits."""
    key = _key(settings.SECRET_KEY, kind, queue_id)
    value = _encipher(key, number)
    return f"{value:016x}{_proof(key, value)}"


def decode_id(kind: str, queue_id: int, text: str) -> int | None:
    """Return the number behind an opaque form, ``None`` if it is not one of ours (``SECRET_KEY_FALLBACKS`` count)."""
    if len(text) != 2 * (8 + _PROOF_BYTES) or not text.isalnum():
        return None
    try:
        value = int.from_bytes(bytes.fromhex(text[:16]))
    except ValueError:
        return None
    for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        key = _key(secret, kind, queue_id)
        if hmac.compare_digest(_proof(key, value), text[16:].lower()):
            return _decipher(key, value)
    return None


def queue_path(name: str) -> str:
    """Return the path of a queue."""
    return reverse("leasequeue-zaqar:queue", args=[name])


def message_path(name: str, queue_id: int, seq: int, claim: int | None = None) -> str:
    """Return the path of a message, with its claim if it is held by the caller."""
    path = f"{queue_path(name)}/messages/{encode_id('message', queue_id, seq)}"
    return path if claim is None else f"{path}?claim_id={encode_id('claim', queue_id, claim)}"


def claim_path(name: str, queue_id: int, claim: int) -> str:
    """Return the path of a claim."""
    return f"{queue_path(name)}/claims/{encode_id('claim', queue_id, claim)}"


def next_link(path: str, query: dict[str, str], marker: str) -> list[dict[str, str]]:
    """Return the one ``next`` link of a list: the query as it was, the marker moved on."""
    return [{"rel": "next", "href": f"{quote(path)}?{urlencode({**query, 'marker': marker})}"}]


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
    )
    async def put(self, request: Request, queue: str) -> HttpResponse:
        created = await self.run(ensure(queue, project=self.project, preset="zaqar"))
        if not created:
            await self.queue(queue)
        return self.empty(status=201 if created else 204, headers={"Location": queue_path(queue)})

    @endpoint("queue_exists", "Is the queue there?", scopes=[READ], answers={204: None}, errors=(404,))
    async def get(self, request: Request, queue: str) -> HttpResponse:
        """Say whether it is there: 204 or 404."""
        await self.queue(queue)
        return self.empty(headers={"Content-Location": queue_path(queue)})

    head = get

    @endpoint("delete_queue", "Delete a queue with its messages.", scopes=[DELETE], answers={204: None})
    async def delete(self, request: Request, queue: str) -> HttpResponse:
        """Delete a queue with its messages."""
        if await self.find(queue) is not None:
            await self.run(engine.delete(queue, project=self.project))
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
        await self.run(set_metadata(queue, document, project=self.project))
        return self.empty(headers={"Location": request.path})


class StatsView(ZaqarView):
    @endpoint("queue_stats", "Count messages.", scopes=[READ], answers={200: Stats}, errors=(404,))
    async def get(self, request: Request, queue: str) -> HttpResponse:
        """Count free and claimed messages as they are now, whether or not expired claims were swept."""
        info = await self.queue(queue)
        counted = await self.run(engine.counts(queue, project=self.project))
        total = counted.ready + counted.in_flight
        stats: dict[str, Any] = {"free": counted.ready, "claimed": counted.in_flight, "total": total}
        ends = await self.run(messages.get_ends(info.id)) if total else None
        if ends is not None:
            for name, end in zip(("oldest", "newest"), ends, strict=True):
                created = end.created_at.strftime("%Y-%m-%dT%H:%M:%SZ")
                stats[name] = {"href": message_path(queue, info.id, end.seq), "age": end.age, "created": created}
        return json_response({"messages": stats}, headers={"Content-Location": request.path})
