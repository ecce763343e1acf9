"""Messages: list, one, by ids, post, delete."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from ... import engine
from ...engine import Ending, NewJob, Outcome
from ...engine.queues.queues import QueueInfo
from ...engine.topics import messages as store
from ...engine.topics.messages import Message
from .. import payload
from ..auth import require
from .base import DELETES, READS, WRITES, ZaqarView
from .errors import bad, forbidden, missing
from .ids import seal, unseal
from .limits import Limits
from .links import message_path, messages_path, next_link
from .schema import BOOLEAN, ID, LISTING, MESSAGE, MESSAGES, NEW_MESSAGES, POSTED, described, limit


def show(message: Message, queue: QueueInfo, limits: Limits, *, claim: int | None = None) -> dict[str, Any]:
    """Return a message as the page has it; with the claim in its path for whoever holds it."""
    ttl = limits.MAX_MESSAGE_TTL
    if message.expires_at is not None:
        ttl = round((message.expires_at - message.created_at) / timedelta(seconds=1))
    return {
        "href": message_path(queue.name, queue.id, message.seq, claim),
        "ttl": ttl,
        "age": message.age,
        "body": payload.raw(message.data_json),
    }


class MessagesView(ZaqarView):
    """``/v1/queues/{queue_name}/messages``."""

    required_scopes = {"GET": READS, "POST": WRITES, "DELETE": DELETES}
    client_required = True

    def _ids(self, request: Request, queue: QueueInfo) -> list[int] | None:
        """Return the numbers behind ``ids`` (comma-separated or repeated), malformed ones left out."""
        given = request.query_params.getlist("ids")
        if not given:
            return None
        texts = [text for part in given for text in part.split(",") if text]
        highest = self.limits.MAX_MESSAGES_PER_PAGE
        if not 1 <= len(texts) <= highest:
            raise bad(f"The list of ids cannot be empty, and cannot have more than {highest}.")
        numbers = (unseal("message", queue.id, text) for text in texts)
        return list(dict.fromkeys(number for number in numbers if number is not None))

    @described(
        "list_messages",
        "List messages, or read those named by ids.",
        client=True,
        answers={200: {"oneOf": [LISTING, MESSAGES]}, 204: None},
        query={
            "marker": ({"type": "string"}, "From the next link of the page before."),
            "limit": limit(20),
            "echo": (BOOLEAN, "Also the client's own."),
            "include_claimed": (BOOLEAN, "Also held ones."),
            "ids": ({"type": "string"}, "Comma-separated or repeated."),
        },
    )
    def get(self, request: Request, queue: str) -> Response:
        """List messages, or return those named by ``ids``."""
        info = self.find(queue)
        if "ids" in request.query_params:
            return self._get_by_ids(request, info)
        size = self.page(request, self.limits.MAX_MESSAGES_PER_PAGE)
        echo = self.flag(request, "echo")
        leased = self.flag(request, "include_claimed")
        if info is None:
            return Response(status=204)
        after = self._marker(request, info)
        found = engine.run(
            store.list_messages(info.id, after=after, size=size, without=None if echo else self.client, leased=leased)
        )
        if not found:
            return Response(status=204)
        kept = {"limit": str(size), "echo": str(echo).lower(), "include_claimed": str(leased).lower()}
        marker = seal("marker", info.id, found[-1].position)
        return Response(
            {
                "links": next_link(request.path, kept, marker),
                "messages": [show(message, info, self.limits) for message in found],
            },
            headers={"Content-Location": request.get_full_path()},
        )

    def _marker(self, request: Request, queue: QueueInfo) -> int:
        given = request.query_params.get("marker")
        if not given:
            return 0
        after = unseal("marker", queue.id, given)
        if after is None:
            raise bad("The marker must be the one that the list before this gave.")
        return after

    def _get_by_ids(self, request: Request, queue: QueueInfo | None) -> Response:
        if queue is None:
            return Response(status=204)
        numbers = self._ids(request, queue)
        found = engine.run(store.get_messages(queue.id, numbers)) if numbers else []
        if not found:
            return Response(status=204)
        return Response(
            [show(message, queue, self.limits) for message in found],
            headers={"Content-Location": request.get_full_path()},
        )

    @described(
        "post_messages",
        "Post messages: all or none.",
        client=True,
        body=NEW_MESSAGES,
        answers={201: POSTED},
        errors=(404,),
    )
    def post(self, request: Request, queue: str) -> Response:
        """Enqueue messages: all or none."""
        document = self.body(request, self.limits.MAX_MESSAGES_SIZE)
        highest = self.limits.MAX_MESSAGES_PER_PAGE
        if not isinstance(document, list) or not 1 <= len(document) <= highest:
            raise bad(f"The body must be an array of 1 to {highest} messages.")
        jobs = [self._new(entry) for entry in document]
        info = self.queue(queue)
        answers = engine.run(engine.enqueue(queue, jobs, project=self.project, origin=self.client, create=False))
        seqs = [answer.seq for answer in answers]
        return Response(
            {"resources": [message_path(queue, info.id, seq) for seq in seqs], "partial": False},
            status=201,
            headers={"Location": messages_path(queue, info.id, seqs)},
        )

    def _new(self, entry: Any) -> NewJob:
        if not isinstance(entry, dict):
            raise bad("A message must be an object with the fields 'ttl' and 'body'.")
        if "body" not in entry:
            raise bad("The field 'body' of a message is missing.")
        ttl = self.integer(entry, "ttl", self.limits.MIN_MESSAGE_TTL, self.limits.MAX_MESSAGE_TTL)
        return NewJob(data=entry["body"], ttl_ms=ttl * 1_000)

    @described(
        "delete_messages",
        "Delete free messages by ids.",
        client=True,
        answers={204: None},
        query={"ids": ({"type": "string"}, "Comma-separated or repeated.")},
    )
    def delete(self, request: Request, queue: str) -> Response:
        """Delete the messages named by ``ids``; those that somebody holds stay."""
        if "ids" not in request.query_params:
            raise bad("Name the messages to delete: ?ids=ID,ID")
        info = self.find(queue)
        if info is not None:
            numbers = self._ids(request, info)
            if numbers:
                engine.run(store.delete_messages(info.id, numbers))
        return Response(status=204)


class MessageView(ZaqarView):
    """``/v1/queues/{queue_name}/messages/{message_id}``."""

    required_scopes = {"GET": READS, "DELETE": WRITES}
    client_required = True

    @described("get_message", "Read one message.", client=True, answers={200: MESSAGE}, errors=(404,))
    def get(self, request: Request, queue: str, message: str) -> Response:
        """Return one message, whoever posted or holds it."""
        info = self.queue(queue)
        seq = unseal("message", info.id, message)
        found = [] if seq is None else engine.run(store.get_messages(info.id, [seq]))
        if not found:
            raise missing("There is no such message.")
        return Response(show(found[0], info, self.limits), headers={"Content-Location": request.get_full_path()})

    @described(
        "delete_message",
        "Delete one message: a held one with its claim.",
        client=True,
        answers={204: None},
        query={"claim_id": (ID, "The claim that holds it.")},
    )
    def delete(self, request: Request, queue: str, message: str) -> Response:
        """Delete one message: a held one only with its claim, which must not have expired."""
        info = self.find(queue)
        seq = None if info is None else unseal("message", info.id, message)
        if info is None or seq is None:
            return Response(status=204)
        if "claim_id" in request.query_params:
            return self._delete_claimed(request, info, seq)
        require(self.access, DELETES)
        gone = engine.run(store.delete_messages(info.id, [seq]))
        if not gone and engine.run(store.get_messages(info.id, [seq])):
            raise forbidden("The message is claimed; name its claim to delete it: ?claim_id=ID")
        return Response(status=204)

    def _delete_claimed(self, request: Request, queue: QueueInfo, seq: int) -> Response:
        claim = unseal("claim", queue.id, request.query_params["claim_id"])
        live = None if claim is None else engine.run(store.get_claim(queue.id, claim))
        if live is not None:
            settled = engine.run(
                engine.finish([Ending(seq, live.id)], live.node, project=self.project, queue=queue.name)
            )
            if settled.outcomes[seq] is Outcome.OK:
                return Response(status=204)
        found = engine.run(store.get_messages(queue.id, [seq]))
        if not found:
            return Response(status=204)
        if found[0].claim is None:
            raise forbidden("A claim was specified, but the message is not currently claimed.")
        raise forbidden("The specified claim does not exist, has expired, or does not hold this message.")
