"""The bodies of answers, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Any

from ...conf.queue_options import OPTIONS, QueueOption
from ..schema import Parameter, Shape
from ..views import MAX_WARNINGS
from .base import NAME_PATTERN

Json = dict[str, Any]

_COUNT: Json = {"type": "integer", "minimum": 0}
_TEXT: Json = {"type": "string"}
_BOOLEAN: Json = {"type": "boolean"}
_SEQS: Json = {"type": "array", "items": _COUNT}
_TIME: Json = {"type": "integer", "description": "Milliseconds since the epoch."}
PERFORMANCE: Json = {
    "type": "object",
    "required": ["server_total_ms"],
    "properties": {
        "server_total_ms": {
            "type": "number",
            "minimum": 0,
            "description": "From the request's arrival to this answer.",
        },
        "fsync_ms": {"type": "number", "minimum": 0, "description": "Waiting for the disk; 0 where nothing waited."},
        "throttle_wait_ms": {"type": "number", "minimum": 0, "description": "Always 0: too many requests get a 429."},
    },
}


def _object(required: Json, optional: Json | None = None) -> Json:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


_WARNINGS: Json = {
    "type": "array",
    "items": _TEXT,
    "minItems": 1,
    "maxItems": MAX_WARNINGS,
    "description": "What of the request was ignored or cut; left out when there is nothing to say.",
}


def _answer(required: Json, optional: Json | None = None) -> Json:
    return _object({**required, "performance": PERFORMANCE}, {**(optional or {}), "warnings": _WARNINGS})


def _option(option: QueueOption) -> Json:
    if option.choices is not None:
        return {"type": "string", "enum": option.choices.values}
    return {"integer": _COUNT, "boolean": _BOOLEAN, "topic": {"type": ["string", "null"]}}[option.kind]


CONFIG: Json = _object(
    {**{name: _option(option) for name, option in OPTIONS.items() if option.http}, "durable": _BOOLEAN},
    {"priority_order": {"type": "string", "enum": ["desc", "asc"], "description": "Left out where it is `none`."}},
)
RECORD: Json = _object(
    {"$seq": _COUNT, "$ts": _TIME, "data": {}},
    {"$tag": _TEXT, "$node": _TEXT, "meta": {"type": "object"}},
)
LEASED: Json = _object(
    {
        "$seq": _COUNT,
        "lease_id": {"type": "string", "pattern": "^lease_[0-9a-f]+$"},
        "deadline": _TIME,
        "$ts": _TIME,
        "deliveries": {"type": "integer", "minimum": 1},
        "data": {},
    },
    {"$tag": _TEXT, "meta": {"type": "object"}},
)
TOMBSTONE: Json = _object(
    {
        "gap_from": _COUNT,
        "gap_to": _COUNT,
        "reason": {"type": "string", "enum": ["cap", "ttl"]},
        "missed_estimate": _COUNT,
    }
)


class TopicCreated(Shape):
    """The topic's configuration, every field of it."""

    shape = _answer({"topic": _TEXT, "created": _BOOLEAN, "config": CONFIG})


class TopicState(Shape):
    """Where the topic stands."""

    shape = _answer(
        {
            "topic": _TEXT,
            "type": {"type": "string", "enum": ["log", "queue"]},
            "head_seq": {**_COUNT, "description": "The highest number it ever gave; 0: none."},
            "earliest_seq": {**_COUNT, "description": "The lowest live number; next_seq when it is empty."},
            "next_seq": {**_COUNT, "description": "No new record has a lower number. Numbers are not contiguous."},
            "count": _COUNT,
            "bytes": {**_COUNT, "description": "Size of data and meta as JSON text."},
            "config": CONFIG,
            "last_write_ts": {"type": ["integer", "null"], "description": "Milliseconds since the epoch; null: never."},
        },
        {
            "queue": {
                **_object({"ready": _COUNT, "in_flight": _COUNT, "dead_lettered": _COUNT}, {"waiting": _COUNT}),
                "description": "Only of a queue; `waiting` only while jobs wait for a limit or a workflow.",
            }
        },
    )


class TopicList(Shape):
    """Topics by name, a page at a time."""

    shape = _answer(
        {
            "topics": {
                "type": "array",
                "items": _object({"topic": _TEXT, "type": {"type": "string", "enum": ["log", "queue"]}}),
            }
        },
        {"next_cursor": {"type": "string", "description": "There is more: ask again with `cursor`."}},
    )


class TopicDeleted(Shape):
    """Whether it was there."""

    shape = _answer({"topic": _TEXT, "deleted": _BOOLEAN})


class Written(Shape):
    """The numbers that the records got, in their order."""

    shape = _answer(
        {
            "topic": _TEXT,
            "first_seq": _COUNT,
            "last_seq": _COUNT,
            "head_seq": _COUNT,
            "count": {**_COUNT, "description": "Live records of the topic after the write."},
            "created": {**_BOOLEAN, "description": "Whether this write made the topic."},
            "deduped": {**_BOOLEAN, "description": "The idempotency key was used before: nothing was appended."},
        },
        {"seqs": _SEQS},
    )


class Diff(Shape):
    """Records in order of their numbers."""

    shape = _answer(
        {
            "topic": _TEXT,
            "records": {"type": "array", "items": RECORD},
            "next_from_seq": {**_COUNT, "description": "Read on from here."},
            "head_seq": _COUNT,
            "caught_up": {**_BOOLEAN, "description": "There is nothing behind next_from_seq now."},
            "lag": {**_COUNT, "description": "head_seq - next_from_seq: at most so many records are left."},
            "tombstone": {"oneOf": [TOMBSTONE, {"type": "null"}], "description": "What a cap or the TTL took away."},
            "timeline": {**_COUNT, "description": "The server's; a failover changes it. Send it with the next read."},
            "reset_to": {
                "type": ["integer", "null"],
                "description": "Where the read began instead, as records up to from_seq may be lost.",
            },
        }
    )


class Dropped(Shape):
    """How many records were deleted."""

    shape = _answer({"topic": _TEXT, "deleted": _COUNT, "count": _COUNT})


class Claimed(Shape):
    """The leased jobs, in claim order."""

    shape = _answer(
        {
            "topic": _TEXT,
            "claimed": {"type": "array", "items": LEASED, "maxItems": 1000},
            "count": {**_COUNT, "description": "Fewer than asked: the queue is (nearly) empty."},
            "ready": _COUNT,
        }
    )


def _settled(word: str, more: Json, optional: Json | None = None) -> Json:
    return _answer(
        {
            "topic": _TEXT,
            word: _COUNT,
            "skipped": {**_SEQS, "description": "What is not held by the node, in the order asked."},
            **more,
        },
        optional,
    )


class Acked(Shape):
    """How many jobs are done and gone."""

    shape = _settled("acked", {"ready": _COUNT, "in_flight": _COUNT})


class Nacked(Shape):
    """How many jobs were given back."""

    shape = _settled("nacked", {"ready": _COUNT, "in_flight": _COUNT})


class Extended(Shape):
    """The new deadlines."""

    shape = _settled(
        "extended",
        {"deadlines": {"type": "object", "additionalProperties": _TIME, "description": "By seq."}},
        {"cancelled": {**_SEQS, "description": "Held, and to be stopped; left out when there is none."}},
    )


_NAME: Json = {"type": "string", "description": "Of a repeated step with its number: `page`, `page#2`."}
_VALUE: Json = {"description": "What it returned: any JSON."}


class JobSteps(Shape):
    """What the steps of a job have returned, in their order."""

    shape = _answer(
        {
            "topic": _TEXT,
            "seq": _COUNT,
            "steps": {"type": "array", "maxItems": 1000, "items": _object({"name": _NAME, "value": _VALUE})},
        },
        {"next": {**_COUNT, "description": "There may be more: ask again with `after`."}},
    )


class StepRecorded(Shape):
    """What is kept of the step: the value of the first one who did it."""

    shape = _answer({"topic": _TEXT, "seq": _COUNT, "name": _NAME, "value": _VALUE})


class JobSuspended(Shape):
    """Whether the job was given back, or goes on."""

    shape = _answer(
        {
            "topic": _TEXT,
            "seq": _COUNT,
            "name": _NAME,
            "suspended": {**_BOOLEAN, "description": "It was given back. Else what it waited for is over: go on."},
        },
        {
            "left_ms": {**_COUNT, "description": "Of a suspended one: for so long, at most."},
            "payload": {"description": "Of an event that has come."},
            "timed_out": {**_BOOLEAN, "description": "Of a wait for an event that is over: whether it did not come."},
        },
    )


class EventEmitted(Shape):
    """Whether it is the first event of its name."""

    shape = _answer({"event": _TEXT, "first": {**_BOOLEAN, "description": "Else nothing has changed."}})


class WatchCreated(Shape):
    """Where the event stream is."""

    shape = _answer({"wid": _TEXT, "stream_url": _TEXT})


TOPIC = Parameter(
    "topic", {"type": "string", "pattern": NAME_PATTERN, "maxLength": 255}, "The topic's name.", where="path"
)
