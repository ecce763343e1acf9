"""Records: append, read without leasing, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NotRequired

from django.http import HttpResponse
from rest_framework.request import Request

from ... import conf
from ...engine import NewJob
from ...engine.jobs.new_jobs import payload_too_large
from ...engine.limits import MAX_KEY_BYTES, MAX_TAG_BYTES
from ...engine.topics.log import MAX_TIMELINE, read, sealer
from ...engine.topics.topics import TopicLook, drop, write
from ...enums import PriorityOrder, QueueType
from .. import payload
from ..access import DELETE, READ, WRITE
from ..errors import ApiError
from ..fields import OPTIONAL, Body, Boolean, Integer, Text, storable
from ..schema import Parameter, switch
from .base import Count, OfTopic, Record, Seqs, Tombstone, TopicView, endpoint, record, tombstone
from .catalog import ConfigBody, ConfigField, TopicItemView
from .fields import RECORD_FIELDS, Nodes, Records, invalid
from .reading import read_page

_RETURN_SEQS = switch("return_seqs", True, "Whether `seqs` is wanted.")
_KEY = Parameter(
    "Idempotency-Key", {"type": "string", "minLength": 1, "maxLength": MAX_KEY_BYTES}, "As in the body.", where="header"
)
#: The longest wait of a long-poll; records of one read, where MAX_PAGE allows so many.
MAX_WAIT_MS, MAX_READ = 30_000, 1_000
_ERRORS = {404: ["topic_not_found"]}


class WriteBody(Body):
    """Records to append."""

    bulk = True
    records = Records()
    # (the metaclass takes fields out: the method stays)
    create = Boolean(default=True, help_text="Whether the first write makes the topic.")  # type: ignore[assignment]
    config = ConfigField(help_text="The topic's configuration, if this write makes it.", **OPTIONAL)
    idempotency_key = Text(
        high=MAX_KEY_BYTES,
        help_text="Within the topic's window the same key appends once; wins over the header.",
        **OPTIONAL,
    )

    @classmethod
    def check_large(cls, fields: Mapping[str, Any]) -> None:
        limit = conf.settings.MAX_PAYLOAD_BYTES
        if conf.settings.LARGE.ABOVE is not None:
            limit = max(limit, conf.settings.LARGE.MAX_BYTES)
        if any(payload.surely_longer(record.data, limit) for record in fields["records"]):
            raise payload_too_large(limit)

    @classmethod
    def unknown(cls, data: Mapping[str, Any]) -> list[str]:
        names = sorted(set().union(*data["records"]) - RECORD_FIELDS)
        return [
            *super().unknown(data),
            *(f"config.{name}" for name in ConfigBody.unknown(data.get("config") or {})),
            *(f"records[].{name}" for name in names),
        ]


class Written(OfTopic):
    """The numbers that the records got, in their order."""

    first_seq: Count
    last_seq: Count
    head_seq: Count
    count: Annotated[Count, "Live records of the topic after the write."]
    created: Annotated[bool, "Whether this write made the topic."]
    deduped: Annotated[bool, "The idempotency key was used before: nothing was appended."]
    seqs: NotRequired[Seqs]


_WRITE = {
    "A job": (
        {"records": [{"data": {"type": "resize", "id": 7}, "tag": "img-7"}]},
        {
            "topic": "resize", "first_seq": 480101, "last_seq": 480101, "seqs": [480101], "head_seq": 480101,
            "count": 1, "created": True, "deduped": False, "performance": {"server_total_ms": 1.9, "fsync_ms": 0.0},
        },
    )
}  # fmt: skip


class TopicAddressView(TopicItemView):
    """One topic: its state, its configuration, and appending to it."""

    @endpoint(
        "writeRecords",
        "Append records",
        description="All or none. The first write makes the topic, as `config` says (a log, if it says nothing).",
        scopes=[WRITE],
        adds=True,
        body=WriteBody,
        answers={201: Written, 200: Written},
        errors={
            400: ["batch_too_large", "record_too_large"],
            404: ["topic_not_found"],
            409: ["topic_exists_incompatible"],
            422: ["topic_full"],
        },
        parameters=[_RETURN_SEQS, _KEY],
        examples=_WRITE,
    )
    async def post(self, request: Request, topic: str) -> HttpResponse:
        body = await self.body()
        return_seqs = self.flag(_RETURN_SEQS)
        options = self.queue_options(body.get("config", {"type": "log"}), topic) if body["create"] else None
        key: str | None = body.get("idempotency_key") or request.META.get("HTTP_IDEMPOTENCY_KEY")
        if key is not None and not 0 < storable(key) <= MAX_KEY_BYTES:
            raise ApiError(400, "invalid_request", f"Idempotency-Key must be 1 to {MAX_KEY_BYTES} bytes of text.")
        operation = write(topic, body["records"], project=self.project, key=key, create=options)
        written, fsync_ms = await self.run_durably(topic, operation)
        special = [record for record in body["records"] if record.delay_ms or record.priority is not None]
        if special:
            await self.warn(topic, partial(_unheeded, topic, special))
        created, deduped, seqs = written.created, written.deduped, written.seqs
        added = 0 if deduped else len(seqs)
        delayed = 0 if deduped else sum(1 for record in special if record.delay_ms)
        count = (await self.figures(topic, ready=added - delayed, count=added)).count
        first, last = seqs[0], seqs[-1]
        answer = Written(
            topic=topic, first_seq=first, last_seq=last, head_seq=last, count=count, created=created, deduped=deduped
        )
        if return_seqs:
            answer["seqs"] = seqs
        return self.answer(answer, status=201 if created else 200, performance={"fsync_ms": fsync_ms})


def _unheeded(topic: str, records: Sequence[NewJob], found: TopicLook) -> str | None:
    """Say which priorities and delays of records the topic does not heed, ``None`` if it heeds all."""
    priorities = [record.priority for record in records if record.priority is not None]
    if found.type == QueueType.LOG:
        return f"{topic!r} is a log: priority and delay_ms mean nothing there and were ignored."
    if priorities and found.priority_order == PriorityOrder.NONE:
        return f"{topic!r} has the priority_order none: priority was ignored."
    low, high = found.priority_min, found.priority_max
    if priorities and not low <= min(priorities) <= max(priorities) <= high:
        return f"{topic!r} has priorities from {low} to {high}: others were cut to that range."
    return None


class DiffBody(Body):
    """Where to read, and what."""

    from_seq = Integer(default=0, help_text="Exclusive: the next_from_seq of the read before.")
    limit = Integer(low=1, most=lambda: min(MAX_READ, conf.settings.MAX_PAGE), default=256)
    node = Nodes(help_text="Leave out the records of this node, or of these.", **OPTIONAL)
    include_tags = Boolean(default=False)
    include_meta = Boolean(default=True)
    wait_ms = Integer(high=MAX_WAIT_MS, default=0, help_text="Wait so long for a record.")
    timeline = Integer(low=1, high=MAX_TIMELINE, help_text="Of the read before, to hear of a failover.", **OPTIONAL)
    reset = Boolean(default=False, help_text="Instead of 409 log_truncated read from what is kept for sure.")


class Diff(OfTopic):
    """Records in order of their numbers."""

    records: list[Record]
    next_from_seq: Annotated[Count, "Read on from here."]
    head_seq: Count
    caught_up: Annotated[bool, "There is nothing behind next_from_seq now."]
    lag: Annotated[Count, "head_seq - next_from_seq: at most so many records are left."]
    tombstone: Annotated[Tombstone | None, "What a cap or the TTL took away."]
    timeline: Annotated[Count, "The server's; a failover changes it. Send it with the next read."]
    reset_to: Annotated[int | None, "Where the read began instead, as records up to from_seq may be lost."]


class DiffView(TopicView):
    @endpoint(
        "readRecords",
        "Read records without leasing them",
        scopes=[READ],
        description="In order of their numbers, also of a queue. No record is skipped because it was committed late.",
        body=DiffBody,
        answers={200: Diff},
        errors={**_ERRORS, 409: ["log_truncated"]},
    )
    async def post(self, request: Request, topic: str) -> HttpResponse:
        body = await self.body()
        page_of = {"project": self.project, "size": body["limit"], "skip_nodes": body.get("node", ())}
        reads = partial(read, topic, **page_of, reset=body["reset"], seals=sealer(self.runner.using))
        page = await read_page(self.runner, reads, body["from_seq"], body.get("timeline"), body["wait_ms"] / 1000)
        tags, meta = body["include_tags"], body["include_meta"]
        lag = max(0, page.head_seq - page.cursor)
        return self.answer(
            Diff(
                topic=topic,
                records=[record(row, topic, self.access, tags=tags, meta=meta) for row in page.records],
                next_from_seq=page.cursor,
                head_seq=page.head_seq,
                caught_up=not lag,
                lag=lag,
                tombstone=None if page.gap is None else tombstone(page.gap),
                timeline=page.timeline,
                reset_to=page.reset_to,
            )
        )


class DropBody(Body):
    """Which records to delete; both conditions together narrow each other."""

    also = {
        "anyOf": [
            {"required": ["before_seq"], "properties": {"before_seq": {"type": "integer"}}},
            {"required": ["match"], "properties": {"match": {"type": "string"}}},
        ]
    }

    before_seq = Integer(help_text="Only records with a lower number.", **OPTIONAL)
    match = Text(
        high=MAX_TAG_BYTES + 1, help_text='Only this tag, or with a "*" at the end tags that begin so.', **OPTIONAL
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("before_seq") is None and attrs.get("match") is None:
            raise invalid("Say which records to delete: before_seq, match, or both.")
        return attrs


class Dropped(OfTopic):
    """How many records were deleted."""

    deleted: Count
    count: Count


class DropView(TopicView):
    @endpoint(
        "deleteRecords",
        "Delete records by number or tag",
        scopes=[DELETE],
        description="Leased jobs too: their acks are skipped afterwards.",
        body=DropBody,
        answers={200: Dropped},
        errors=_ERRORS,
    )
    async def post(self, request: Request, topic: str) -> HttpResponse:
        body = await self.body()
        tag: str | None = body.get("match")
        prefix = None
        if tag is not None and tag.endswith("*"):
            prefix, tag = tag[:-1], None
        operation = drop(topic, project=self.project, before=body.get("before_seq"), tag=tag, tag_prefix=prefix)
        deleted, fsync_ms = await self.run_durably(topic, operation)
        count = (await self.figures(topic, count=-deleted, recount=deleted > 0)).count
        return self.answer(Dropped(topic=topic, deleted=deleted, count=count), performance={"fsync_ms": fsync_ms})
