"""Topics themselves: list, make or configure, look, delete."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Annotated, Any, NotRequired, TypedDict

from django.http import HttpResponse
from rest_framework.request import Request

from ... import engine
from ...conf.queue_options import OPTIONS, QueueOption
from ...engine.codec import decode_cursor, encode_cursor
from ...engine.limits import MAX_QUEUE_BYTES
from ...engine.queues.queues import QueueLine
from ...engine.topics.topics import state
from ...enums import Durability, PriorityOrder
from ...exceptions import InvalidOption, QueueNotFound
from ..access import ADMIN, DELETE, READ
from ..errors import ApiError
from ..fields import OPTIONAL, STORABLE, Body, Boolean, Field, Integer, Parsed, Text, Word
from ..schema import CURSOR, Parameter, page_size, switch
from ..views import ApiView
from .base import (
    CONFIG_FIELDS,
    NAME_PATTERN,
    Config,
    Count,
    OfTopic,
    TopicView,
    check_name,
    endpoint,
    milliseconds,
    to_config,
)
from .fields import invalid

_PREFIX = Parameter(
    "prefix", {"type": "string", "maxLength": MAX_QUEUE_BYTES, "pattern": STORABLE}, "Only names that begin so."
)
_PAGE_SIZE = page_size(100)
_IF_EMPTY = switch("if_empty", False, "Refuse while it has records.")

TopicType = Annotated[str, {"enum": ["log", "queue"]}]


class TopicLine(OfTopic):
    type: TopicType


class TopicList(TypedDict):
    """Topics by name, a page at a time."""

    topics: list[TopicLine]
    next_cursor: NotRequired[Annotated[str, "There is more: ask again with `cursor`."]]


class TopicsView(ApiView):
    @endpoint(
        "listTopics",
        "List topics by name",
        scopes=[READ],
        description="Only those that the key may see.",
        answers={200: TopicList},
        parameters=[_PREFIX, _PAGE_SIZE, CURSOR],
    )
    async def get(self, request: Request) -> HttpResponse:
        prefix = request.GET.get("prefix", "")
        size = self.number(_PAGE_SIZE)
        (after,) = decode_cursor(request.GET.get("cursor"), (str,)) or [""]
        page = await self._list(prefix, after, size)
        answer: TopicList = {"topics": [{"topic": line.name, "type": line.type} for line in page]}
        # A page may be as long as a listing gets: only another look tells whether there is more.
        if len(page) == size and await self._list(prefix, page[-1].name, 1):
            answer["next_cursor"] = encode_cursor(page[-1].name)
        return self.answer(answer)

    async def _list(self, prefix: str, after: str, size: int) -> list[QueueLine]:
        found, away = await self.list_queues(size, after=after, prefix=prefix)
        if away:
            self.warnings = [f"Topics are missing: {away} of the databases that hold them cannot be reached."]
        return found


class ConfigBody(Body):
    """The configuration of a topic; what is left out has its default."""

    durable = Boolean(default=False, help_text="Short for durability fsync.")
    durability = Word(tuple(Durability.values), help_text="What a commit waits for; wins over durable.", **OPTIONAL)
    dead_letter = Text(
        high=255,
        pattern=f"^(?!self$){NAME_PATTERN.removeprefix('^')}",
        required=False,
        allow_null=True,
        default=None,
        help_text="A topic; null: none.",
    )
    priority_order = Word(
        tuple(PriorityOrder.values),
        default="none",
        help_text="Which jobs come first: of the highest priority (desc), of the lowest (asc), or as written (none).",
    )

    nulls = frozenset({"dead_letter"})

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        # null stands for the default, as everywhere.
        if isinstance(data, dict):
            data = {name: value for name, value in data.items() if value is not None or name in self.nulls}
        found: dict[str, Any] = super().to_internal_value(data)
        return found

    def validate_dead_letter(self, value: str | None) -> str | None:
        if value is None:
            return None
        if value == "self":
            raise invalid('dead_letter cannot be "self": that name is reserved. Name another topic.')
        try:
            return check_name(value, "dead_letter")
        except InvalidOption as error:
            raise invalid(str(error)) from error


def _option_field(name: str, option: QueueOption) -> Field:
    # The type is the one option whose default is another here than that of a queue.
    said: dict[str, Any] = {"default": "log" if name == "type" else option.default, "help_text": option.help}
    if option.choices is not None:
        return Word(tuple(option.choices.values), **said)
    if option.kind == "boolean":
        return Boolean(**said)
    return Integer(low=option.low, high=option.high, clamp=option.clamp, **said)


ConfigBody._declared_fields = {
    name: ConfigBody._declared_fields.get(name) or _option_field(name, OPTIONS[name]) for name in CONFIG_FIELDS
}


def _config(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise invalid("config must be an object.")
    return ConfigBody.validated(data)


ConfigField = partial(Parsed, {"$ref": "#/components/schemas/ConfigBody"}, _config)


class QueueFigures(TypedDict):
    ready: Count
    in_flight: Count
    dead_lettered: Count
    waiting: NotRequired[Count]


_OfQueue = Annotated[QueueFigures, "Only of a queue; `waiting` only while jobs wait for a limit or a workflow."]


class TopicState(OfTopic):
    """Where the topic stands."""

    type: TopicType
    head_seq: Annotated[Count, "The highest number it ever gave; 0: none."]
    earliest_seq: Annotated[Count, "The lowest live number; next_seq when it is empty."]
    next_seq: Annotated[Count, "No new record has a lower number. Numbers are not contiguous."]
    count: Count
    bytes: Annotated[Count, "Size of data and meta as JSON text."]
    config: Config
    last_write_ts: Annotated[int | None, "Milliseconds since the epoch; null: never."]
    queue: NotRequired[_OfQueue]


class TopicCreated(OfTopic):
    """The topic's configuration, every field of it."""

    created: bool
    config: Config


class TopicDeleted(OfTopic):
    """Whether it was there."""

    deleted: bool


class TopicItemView(TopicView):
    """One topic; its POST is in ``records``."""

    @endpoint(
        "getTopic", "Look at a topic", scopes=[READ], answers={200: TopicState}, errors={404: ["topic_not_found"]}
    )
    async def get(self, request: Request, topic: str) -> HttpResponse:
        found = await self.runner.run(state(topic, project=self.project))
        info, counts = found.info, found.counts
        next_seq = found.head_seq + 1
        answer: TopicState = {
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
            figures = QueueFigures(ready=counts.ready, in_flight=counts.in_flight, dead_lettered=counts.dead_lettered)
            answer["queue"] = figures | ({"waiting": counts.waiting} if counts.waiting else {})
        return self.answer(answer)

    @endpoint(
        "putTopic",
        "Create or configure a topic",
        description="The configuration is replaced as a whole: what is left out has its default. `type` never changes.",
        scopes=[ADMIN],
        body=ConfigBody,
        answers={201: TopicCreated, 200: TopicCreated},
        errors={409: ["topic_exists_incompatible"]},
    )
    async def put(self, request: Request, topic: str) -> HttpResponse:
        options = self.queue_options(await self.body(), topic)
        while not (
            created := await self.runner.run(engine.create(topic, project=self.project, preset="topics", **options))
        ):
            with suppress(QueueNotFound):  # deleted since: then it is made after all
                await self.runner.run(engine.configure(topic, project=self.project, preset="topics", **options))
                break
        self.forget(topic)
        answer = TopicCreated(topic=topic, created=created, config=to_config(options))
        return self.answer(answer, status=201 if created else 200)

    @endpoint(
        "deleteTopic",
        "Delete a topic with its records",
        scopes=[DELETE],
        answers={200: TopicDeleted},
        errors={409: ["topic_not_empty"]},
        parameters=[_IF_EMPTY],
    )
    async def delete(self, request: Request, topic: str) -> HttpResponse:
        if_empty = self.flag(_IF_EMPTY)
        try:
            deleted = await self.runner.run(engine.delete(topic, project=self.project, if_empty=if_empty))
        except InvalidOption as error:
            if not if_empty:
                raise
            message = f"{topic!r} has records: delete or consume them first, or leave out if_empty."
            raise ApiError(409, "topic_not_empty", message, detail={"topic": topic}) from error
        return self.answer(TopicDeleted(topic=topic, deleted=deleted))
