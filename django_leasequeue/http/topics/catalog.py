"""Topics themselves: list, make or configure, look, delete."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from ... import conf, engine
from ...engine.cursors import decode_cursor, encode_cursor
from ...engine.limits import MAX_QUEUE_BYTES
from ...engine.queues.queues import QueueLine
from ...engine.topics.topics import state
from ...exceptions import InvalidOption, QueueNotFound
from ..access import ADMIN, DELETE, READ
from ..errors import ApiError
from ..schema import Parameter, describe, page_size
from ..views import ApiView
from .base import TopicView, milliseconds, to_config
from .serializers import ConfigBody
from .shapes import TOPIC, TopicCreated, TopicDeleted, TopicList, TopicState

_TAG = "topics"


class TopicsView(ApiView):
    """All topics."""

    required_scopes = {"GET": frozenset({READ})}

    @describe(
        "listTopics",
        "List topics by name",
        tag=_TAG,
        description="Only those that the key may see.",
        answers={200: TopicList},
        errors={400: ["invalid_request"]},
        parameters=[
            Parameter("prefix", {"type": "string", "maxLength": MAX_QUEUE_BYTES}, "Only names that begin so."),
            page_size(100),
            Parameter("cursor", {"type": "string"}, "`next_cursor` of the page before."),
        ],
    )
    async def get(self, request: Request) -> HttpResponse:
        prefix = request.GET.get("prefix", "")
        size = self.number("page_size", 100, 1, conf.settings.MAX_PAGE) or 100
        (after,) = decode_cursor(request.GET.get("cursor"), (str,)) or [""]
        page = await self._list(prefix, after, size)
        answer: dict[str, Any] = {"topics": [{"topic": line.name, "type": line.type} for line in page]}
        # A page may be as long as a listing gets: only another look tells whether there is more.
        if len(page) == size and await self._list(prefix, page[-1].name, 1):
            answer["next_cursor"] = encode_cursor(page[-1].name)
        return self.answer(answer)

    async def _list(self, prefix: str, after: str, size: int) -> list[QueueLine]:
        found = await self.run_on_each(
            engine.list_queues(
                project=self.project, after=after, prefix=prefix, prefixes=self.access.prefixes, size=size
            )
        )
        return sorted(found, key=lambda line: line.name)[:size]


class TopicItemView(TopicView):
    """One topic; its POST is in ``records``."""

    @describe(
        "getTopic",
        "Look at a topic",
        tag=_TAG,
        answers={200: TopicState},
        errors={400: ["invalid_request"], 404: ["topic_not_found"]},
        parameters=[TOPIC],
    )
    async def get(self, request: Request, topic: str) -> HttpResponse:
        found = await self.run(state(topic, project=self.project))
        info, counts = found.info, found.counts
        next_seq = found.head_seq + 1
        answer: dict[str, Any] = {
            "topic": topic,
            "type": info.type,
            "head_seq": found.head_seq,
            "earliest_seq": next_seq if found.earliest_seq is None else found.earliest_seq,
            "next_seq": next_seq,
            "count": found.count,
            "bytes": found.bytes,
            "config": to_config(info.config),
            "last_write_ts": None if found.last_write_at is None else milliseconds(found.last_write_at),
        }
        if info.type == "queue":
            answer["queue"] = {
                "ready": counts.ready,
                "in_flight": counts.in_flight,
                "dead_lettered": counts.dead_lettered,
            }
            if counts.waiting:
                answer["queue"]["waiting"] = counts.waiting
        return self.answer(answer)

    @describe(
        "putTopic",
        "Create or configure a topic",
        tag=_TAG,
        description="The configuration is replaced as a whole: what is left out has its default. `type` never changes.",
        body=ConfigBody,
        answers={201: TopicCreated, 200: TopicCreated},
        errors={409: ["topic_exists_incompatible"]},
        parameters=[TOPIC],
    )
    async def put(self, request: Request, topic: str) -> HttpResponse:
        options = self.queue_options(await self.body(ConfigBody), topic)
        created = await self._put(topic, options)
        self.forget(topic)
        answer = {"topic": topic, "created": created, "config": to_config(options)}
        return self.answer(answer, status=201 if created else 200)

    async def _put(self, topic: str, options: dict[str, Any]) -> bool:
        """Make or configure the topic; return whether it was made."""
        while True:
            if await self.run(engine.create(topic, project=self.project, preset="topics", **options)):
                return True
            # Deleted since: then it is made after all.
            with suppress(QueueNotFound):
                await self.run(engine.configure(topic, project=self.project, preset="topics", **options))
                return False

    @describe(
        "deleteTopic",
        "Delete a topic with its records",
        tag=_TAG,
        answers={200: TopicDeleted},
        errors={400: ["invalid_request"], 409: ["topic_not_empty"]},
        parameters=[
            TOPIC,
            Parameter("if_empty", {"type": "boolean", "default": False}, "Refuse while it has records."),
        ],
    )
    async def delete(self, request: Request, topic: str) -> HttpResponse:
        if_empty = self.flag("if_empty", False)
        try:
            deleted = await self.run(engine.delete(topic, project=self.project, if_empty=if_empty))
        except InvalidOption as error:
            if not if_empty:
                raise
            message = f"{topic!r} has records: delete or consume them first, or leave out if_empty."
            raise ApiError(409, "topic_not_empty", message, detail={"topic": topic}) from error
        return self.answer({"topic": topic, "deleted": deleted})


#: The scopes of one topic's address: reading, writing records (``records``), configuring, deleting.
TOPIC_SCOPES = {
    "GET": frozenset({READ}),
    "PUT": frozenset({ADMIN}),
    "DELETE": frozenset({DELETE}),
}
