"""Messages (list, one, by ids, post, delete) and their claims (create, read, renew, release)."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Annotated, Any, TypedDict

from django.http import HttpResponse
from rest_framework.request import Request

from ... import conf, engine
from ...engine import Ending, NewJob, Outcome
from ...engine.queues.queues import QueueInfo
from ...engine.topics import messages as store
from ...engine.topics.messages import LiveClaim, Message
from ..access import DELETE, READ, WRITE, Access
from ..auth import require
from ..fields import Json
from ..schema import Words, schema_of
from ..views import json_response
from .base import (
    BOOLEAN,
    LINKS,
    MARKER,
    Seconds,
    ZaqarView,
    bad,
    claim_path,
    decode_id,
    encode_id,
    endpoint,
    forbidden,
    limit,
    limit_of,
    message_path,
    missing,
    next_link,
    queue_path,
)

MESSAGE_TTL = Seconds("ttl", "MIN_MESSAGE_TTL", "MAX_MESSAGE_TTL")
CLAIM_TTL = Seconds("ttl", "MIN_CLAIM_TTL", "MAX_CLAIM_TTL")
CLAIM_GRACE = Seconds("grace", "MIN_CLAIM_GRACE", "MAX_CLAIM_GRACE")
_ID = r"[^,\u0000]+"
_MOST_IDS = limit_of("MAX_MESSAGES_PER_PAGE")
IDS: tuple[Json, Words] = (
    {"type": "string", "pattern": lambda: f"^{_ID}(,{_ID}){{0,{_MOST_IDS() - 1}}}$"},
    lambda: f"Comma-separated or repeated, at most {_MOST_IDS():,}.",
)
UNDELETED = "Unable to delete"
#: Who claims when the request names no client: the claim's id alone tells holders apart at this API.
NO_CLIENT = "zaqar"


class ListedMessage(TypedDict):
    href: str
    ttl: Annotated[int, "Seconds that it lives in all."]
    age: Annotated[int, "Seconds since it was posted."]
    body: Annotated[Any, "Any JSON."]


class Listing(TypedDict):
    links: Annotated[Any, LINKS]
    messages: list[ListedMessage]


class Posted(TypedDict):
    resources: list[str]
    partial: Annotated[bool, {"enum": [False]}]


NEW_MESSAGES: Json = {
    "type": "array",
    "minItems": 1,
    "maxItems": limit_of("MAX_MESSAGES_PER_PAGE"),
    "items": {"type": "object", "required": ["ttl", "body"], "properties": {"ttl": MESSAGE_TTL.schema, "body": {}}},
}


def show(message: Message, queue: QueueInfo, access: Access, claim: int | None = None) -> ListedMessage:
    """Return a message as the API shows it; its path names the claim for the claim's holder."""
    ttl = conf.settings.API.ZAQAR.MAX_MESSAGE_TTL
    if message.expires_at is not None:
        ttl = round((message.expires_at - message.created_at) / timedelta(seconds=1))
    return {
        "href": message_path(queue.name, queue.id, message.seq, claim),
        "ttl": ttl,
        "age": message.age,
        "body": access.show(message.data_json, task=message.name, queue=queue.name),
    }


for_client = partial(endpoint, client=True)


class MessagesView(ZaqarView):
    def _ids(self, request: Request, queue: QueueInfo | None) -> list[int]:
        """Return the numbers behind ``ids`` (comma-separated or repeated), malformed ones left out."""
        if queue is None:
            return []
        texts = [text for part in request.GET.getlist("ids") for text in part.split(",") if text]
        highest = self.limits.MAX_MESSAGES_PER_PAGE
        if not 1 <= len(texts) <= highest:
            raise bad(f"The list of ids cannot be empty, and cannot have more than {highest}.")
        numbers = (decode_id("message", queue.id, text) for text in texts)
        return list(dict.fromkeys(number for number in numbers if number is not None))

    @for_client(
        "list_messages",
        "List messages, or read those named by ids.",
        scopes=[READ],
        answers={200: {"oneOf": [schema_of(Listing), schema_of(list[ListedMessage])]}, 204: None},
        query={
            "marker": MARKER,
            "limit": limit("MAX_MESSAGES_PER_PAGE"),
            "echo": (BOOLEAN, "Also the client's own."),
            "include_claimed": (BOOLEAN, "Also held ones."),
            "ids": IDS,
        },
    )
    async def get(self, request: Request, queue: str) -> HttpResponse:
        """List messages, or return those named by ``ids``."""
        info = await self.find(queue)
        where = {"Content-Location": request.get_full_path()}
        if "ids" in request.GET:
            numbers = self._ids(request, info)
            if (
                info is None
                or not numbers
                or not (found := await self.runner.run(store.get_messages(info.id, numbers)))
            ):
                return self.empty()
            return json_response([show(message, info, self.access) for message in found], headers=where)
        size = self.page(self.limits.MAX_MESSAGES_PER_PAGE)
        echo, leased = self.switched_on("echo"), self.switched_on("include_claimed")
        if info is None:
            return self.empty()
        given = request.GET.get("marker")
        after = decode_id("marker", info.id, given) if given else 0
        if after is None:  # nothing comes after a place that is none
            return self.empty()
        without = None if echo else self.client
        found = await self.runner.run(
            store.list_messages(info.id, after=after, size=size, without=without, leased=leased)
        )
        if not found:
            return self.empty()
        kept = {"limit": str(size), "echo": str(echo).lower(), "include_claimed": str(leased).lower()}
        links = next_link(request.path, kept, encode_id("marker", info.id, found[-1].position))
        messages = [show(message, info, self.access) for message in found]
        return json_response(Listing(links=links, messages=messages), headers=where)

    @for_client(
        "post_messages",
        "Post messages: all or none.",
        description=lambda: f"The body has at most {limit_of('MAX_MESSAGES_SIZE')():,} characters.",
        adds=True,
        body=NEW_MESSAGES,
        scopes=[WRITE],
        answers={201: Posted},
        errors=(404,),
    )
    async def post(self, request: Request, queue: str) -> HttpResponse:
        document = await self.document(self.limits.MAX_MESSAGES_SIZE)
        highest = self.limits.MAX_MESSAGES_PER_PAGE
        if not isinstance(document, list) or not 1 <= len(document) <= highest:
            raise bad(f"The body must be an array of 1 to {highest} messages.")
        jobs = []
        for entry in document:
            if not isinstance(entry, dict):
                raise bad("A message must be an object with the fields 'ttl' and 'body'.")
            if "body" not in entry:
                raise bad("The field 'body' of a message is missing.")
            jobs.append(NewJob(data=entry["body"], ttl_ms=MESSAGE_TTL.milliseconds(entry)))
        info = await self.queue(queue)
        answers = await self.runner.run(
            engine.enqueue(queue, jobs, project=self.project, origin=self.client, create=False)
        )
        seqs = [answer.seq for answer in answers]
        posted = Posted(resources=[message_path(queue, info.id, seq) for seq in seqs], partial=False)
        ids = ",".join(encode_id("message", info.id, seq) for seq in seqs)
        return json_response(posted, 201, {"Location": f"{queue_path(queue)}/messages?ids={ids}"})

    @for_client(
        "delete_messages",
        "Delete free messages by ids.",
        scopes=[DELETE],
        answers={204: None},
        query={"ids": IDS},
        needs=["ids"],
    )
    async def delete(self, request: Request, queue: str) -> HttpResponse:
        """Delete the messages named by ``ids``; claimed ones stay."""
        if "ids" not in request.GET:
            raise bad("Name the messages to delete: ?ids=ID,ID")
        info = await self.find(queue)
        numbers = self._ids(request, info)
        if info is not None and numbers:
            await self.runner.run(store.delete_messages(info.id, numbers))
        return self.empty()


class MessageView(ZaqarView):
    @for_client("get_message", "Read one message.", scopes=[READ], answers={200: ListedMessage}, errors=(404,))
    async def get(self, request: Request, queue: str, message: str) -> HttpResponse:
        """Return one message, also a claimed one and the client's own."""
        info = await self.queue(queue)
        seq = decode_id("message", info.id, message)
        found = [] if seq is None else await self.runner.run(store.get_messages(info.id, [seq]))
        if not found:
            raise missing("There is no such message.")
        return json_response(show(found[0], info, self.access), headers={"Content-Location": request.get_full_path()})

    @for_client(
        "delete_message",
        "Delete one message: a held one with its claim.",
        scopes=[WRITE],
        answers={204: None},
        query={"claim_id": ({"type": "string"}, "The claim that holds it.")},
    )
    async def delete(self, request: Request, queue: str, message: str) -> HttpResponse:
        """Delete one message: a held one only with its claim, which must not have expired."""
        info = await self.find(queue)
        seq = None if info is None else decode_id("message", info.id, message)
        if info is None or seq is None:
            return self.empty()
        if "claim_id" in request.GET:
            return await self._delete_claimed(request, info, seq)
        require(self.access, frozenset({DELETE}))
        gone = await self.runner.run(store.delete_messages(info.id, [seq]))
        left = [] if gone else await self.runner.run(store.get_messages(info.id, [seq]))
        if left:
            raise forbidden(UNDELETED, "The message is claimed; name its claim to delete it: ?claim_id=ID")
        return self.empty()

    async def _delete_claimed(self, request: Request, queue: QueueInfo, seq: int) -> HttpResponse:
        claim = decode_id("claim", queue.id, request.GET["claim_id"])
        live = None if claim is None else await self.runner.run(store.get_claim(queue.id, claim))
        if live is not None:
            ending = engine.finish([Ending(seq, live.id)], live.node, project=self.project, queue=queue.name)
            if (await self.runner.run(ending)).outcomes[seq] is Outcome.OK:
                return self.empty()
        found = await self.runner.run(store.get_messages(queue.id, [seq]))
        if not found:
            return self.empty()
        if live is None:
            raise bad("There is no such claim: it ended, was released, or never was.", UNDELETED)
        if found[0].claim is None:
            raise bad("No claim holds the message: leave claim_id out to delete it.", UNDELETED)
        raise forbidden(UNDELETED, "Another claim holds the message than the one that claim_id names.")


_CLAIM: Json = {"ttl": CLAIM_TTL.schema, "grace": CLAIM_GRACE.schema}
NEW_CLAIM: Json = {"type": "object", "required": ["ttl", "grace"], "properties": _CLAIM}
RENEWAL: Json = {"type": "object", "required": ["ttl"], "properties": _CLAIM}


class ClaimState(TypedDict):
    href: str
    ttl: int
    age: int
    messages: list[ListedMessage]


class ClaimsView(ZaqarView):
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
        document = await self.fields("The body must be an object with the fields 'ttl' and 'grace'.")
        lease_ms, grace_ms = CLAIM_TTL.milliseconds(document), CLAIM_GRACE.milliseconds(document)
        info = await self.find(queue)
        if info is None:
            return self.empty()
        node = self.client or NO_CLIENT
        claim = engine.claim(queue, node, size, project=self.project, lease_ms=lease_ms, grace_ms=grace_ms)
        jobs = await self.runner.run(claim)
        if not jobs:
            return self.empty()
        if not self.access.may_claim(jobs):
            await self.refuse_tasks(jobs, node)
        held = jobs[0].token
        # One round of a claim call makes one claim row; what a second round added is given back rather than split.
        extra = [job for job in jobs if job.token != held]
        if extra:
            await self.runner.run(engine.nack([job.seq for job in extra], node, project=self.project))
        live = await self.runner.run(store.get_claim(info.id, held))
        if live is None:
            return self.empty()
        messages = [show(message, info, self.access, held) for message in live.messages]
        return json_response(messages, 201, {"Location": claim_path(queue, info.id, held)})


class ClaimView(ZaqarView):
    async def _live(self, queue: str, claim: str) -> tuple[QueueInfo, LiveClaim]:
        info = await self.queue(queue)
        number = decode_id("claim", info.id, claim)
        live = None if number is None else await self.runner.run(store.get_claim(info.id, number))
        if live is None:
            raise missing("The claim does not exist or has expired.")
        return info, live

    @endpoint("get_claim", "Read a claim and what it holds.", scopes=[READ], answers={200: ClaimState}, errors=(404,))
    async def get(self, request: Request, queue: str, claim: str) -> HttpResponse:
        """Return a claim with the messages that it still holds."""
        info, live = await self._live(queue, claim)
        messages = [show(message, info, self.access, live.id) for message in live.messages]
        path, ttl = claim_path(queue, info.id, live.id), live.ttl_ms // 1_000
        state = ClaimState(href=path, ttl=ttl, age=live.age, messages=messages)
        return json_response(state, headers={"Content-Location": request.path})

    @endpoint("renew_claim", "Renew a claim.", body=RENEWAL, scopes=[WRITE], answers={204: None}, errors=(404,))
    async def patch(self, request: Request, queue: str, claim: str) -> HttpResponse:
        """Renew a claim: its age starts again."""
        document = await self.fields("The body must be an object with the field 'ttl'.")
        lease_ms = CLAIM_TTL.milliseconds(document)
        grace_ms = CLAIM_GRACE.milliseconds(document) if "grace" in document else None
        info, live = await self._live(queue, claim)
        if not await self.runner.run(store.renew_claim(info.id, live.id, lease_ms, grace_ms)):
            raise missing("The claim does not exist or has expired.")
        return self.empty()

    @endpoint("release_claim", "Release a claim.", scopes=[WRITE], answers={204: None})
    async def delete(self, request: Request, queue: str, claim: str) -> HttpResponse:
        """Release a claim: what it still holds is free at once."""
        info = await self.find(queue)
        number = None if info is None else decode_id("claim", info.id, claim)
        if info is not None and number is not None:
            await self.runner.run(store.release_claim(info.id, number, project=self.project))
        return self.empty()
