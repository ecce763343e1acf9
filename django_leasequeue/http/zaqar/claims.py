"""Claims: create, query, update, release."""

from __future__ import annotations

from typing import TypedDict

from django.http import HttpResponse
from rest_framework.request import Request

from ... import engine
from ...engine.queues.queues import QueueInfo
from ...engine.topics import messages as store
from ...engine.topics.messages import LiveClaim
from ..access import READ, WRITE
from ..fields import Json
from ..views import json_response
from .base import CLAIM_GRACE, CLAIM_TTL, ZaqarView, bad, endpoint, limit, missing
from .ids import claim_path, decode_id
from .messages import ListedMessage, show

#: Who claims when the request names no client: the claim's id alone tells holders apart at this door.
NO_CLIENT = "zaqar"


_CLAIM: Json = {"ttl": CLAIM_TTL.schema, "grace": CLAIM_GRACE.schema}
NEW_CLAIM: Json = {"type": "object", "required": ["ttl", "grace"], "properties": _CLAIM}
RENEWAL: Json = {"type": "object", "required": ["ttl"], "properties": _CLAIM}


class ClaimState(TypedDict):
    """A claim and what it still holds."""

    href: str
    ttl: int
    age: int
    messages: list[ListedMessage]


class ClaimsView(ZaqarView):
    """``POST /v1/queues/{queue_name}/claims``."""

    @endpoint(
        "claim_messages",
        "Claim messages, oldest first.",
        body=NEW_CLAIM,
        scopes=[READ, WRITE],
        answers={201: list[ListedMessage], 204: None},
        query={"limit": limit("MAX_MESSAGES_PER_CLAIM")},
    )
    async def post(self, request: Request, queue: str) -> HttpResponse:
        """Claim messages, oldest first."""
        size = self.page(self.limits.MAX_MESSAGES_PER_CLAIM)
        document = await self.document(self.limits.MAX_METADATA_SIZE)
        if not isinstance(document, dict):
            raise bad("The body must be an object with the fields 'ttl' and 'grace'.")
        lease_ms, grace_ms = self.milliseconds(document, CLAIM_TTL), self.milliseconds(document, CLAIM_GRACE)
        info = await self.find(queue)
        jobs = []
        if info is not None:
            jobs = await self.run(
                engine.claim(
                    queue, self.client or NO_CLIENT, size, project=self.project, lease_ms=lease_ms, grace_ms=grace_ms
                )
            )
        if info is None or not jobs:
            return self.empty()
        held = jobs[0].token
        # One round of a claim call makes one claim row; what a second round added is given back rather than split.
        extra = [job for job in jobs if job.token != held]
        if extra:
            await self.run(engine.nack([job.seq for job in extra], self.client or NO_CLIENT, project=self.project))
        live = await self.run(store.get_claim(info.id, held))
        if live is None:
            return self.empty()
        return json_response(
            [show(message, info, self.limits, claim=held) for message in live.messages],
            status=201,
            headers={"Location": claim_path(queue, info.id, held)},
        )


class ClaimView(ZaqarView):
    """``/v1/queues/{queue_name}/claims/{claim_id}``."""

    async def _live(self, queue: str, claim: str) -> tuple[QueueInfo, LiveClaim]:
        info = await self.queue(queue)
        number = decode_id("claim", info.id, claim)
        live = None if number is None else await self.run(store.get_claim(info.id, number))
        if live is None:
            raise missing("The claim does not exist or has expired.")
        return info, live

    @endpoint("get_claim", "Read a claim and what it holds.", scopes=[READ], answers={200: ClaimState}, errors=(404,))
    async def get(self, request: Request, queue: str, claim: str) -> HttpResponse:
        """Return a claim with the messages that it still holds."""
        info, live = await self._live(queue, claim)
        return json_response(
            ClaimState(
                href=claim_path(queue, info.id, live.id),
                ttl=live.ttl_ms // 1_000,
                age=live.age,
                messages=[show(message, info, self.limits, claim=live.id) for message in live.messages],
            ),
            headers={"Content-Location": request.path},
        )

    @endpoint("renew_claim", "Renew a claim.", body=RENEWAL, scopes=[WRITE], answers={204: None}, errors=(404,))
    async def patch(self, request: Request, queue: str, claim: str) -> HttpResponse:
        """Renew a claim: its age starts again."""
        document = await self.document(self.limits.MAX_METADATA_SIZE)
        if not isinstance(document, dict):
            raise bad("The body must be an object with the field 'ttl'.")
        lease_ms = self.milliseconds(document, CLAIM_TTL)
        grace_ms = self.milliseconds(document, CLAIM_GRACE) if "grace" in document else None
        info, live = await self._live(queue, claim)
        if not await self.run(store.renew_claim(info.id, live.id, lease_ms, grace_ms)):
            raise missing("The claim does not exist or has expired.")
        return self.empty()

    @endpoint("release_claim", "Release a claim.", scopes=[WRITE], answers={204: None})
    async def delete(self, request: Request, queue: str, claim: str) -> HttpResponse:
        """Release a claim: what it still holds is free at once."""
        info = await self.find(queue)
        number = None if info is None else decode_id("claim", info.id, claim)
        if info is not None and number is not None:
            await self.run(store.release_claim(info.id, number, project=self.project))
        return self.empty()
