"""What requests may say: every field with its limits, and the codes of the errors' table."""

from __future__ import annotations

import re
from typing import Any

from rest_framework.exceptions import ErrorDetail, ValidationError

from ... import conf
from ...engine import NewJob, parse_token
from ...engine.jobs.enqueue import check_meta
from ...engine.limits import (
    MAX_BATCH,
    MAX_DELAY_MS,
    MAX_KEY_BYTES,
    MAX_LEASE_MS,
    MAX_NODE_BYTES,
    MAX_SEQ,
    MAX_TAG_BYTES,
    MIN_LEASE_MS,
)
from ...engine.queues import presets
from ...engine.topics.log import MAX_NODES
from ...enums import Discard, Durability, QueueType
from ...exceptions import InvalidOption
from .. import payload
from ..fields import Body, Boolean, CutInteger, Field, Integer, Node, Text, Word, storable
from ..options import options
from ..schema import describe_field
from .config import NAME_PATTERN, check_name

#: Limits of one record.
MAX_META_BYTES = 16_384
MAX_META_KEYS = 64
#: The longest wait of a long-poll.
MAX_WAIT_MS = 30_000
#: Records of one read.
MAX_READ = 1_000

_TOKEN = re.compile(r"lease_[0-9a-f]{1,64}\Z")
#: A claim that does not exist: numbers begin at 1.
NO_CLAIM = 0

_OPTIONAL: dict[str, Any] = {"required": False, "allow_null": True}


def _invalid(message: str, code: str = "invalid_request") -> ValidationError:
    return ValidationError([ErrorDetail(message, code)])


class Records(Field):
    """The records of a write, as jobs of the engine."""

    def to_internal_value(self, data: Any) -> list[NewJob]:
        if not isinstance(data, list) or not data:
            raise _invalid('records must be a list of at least one record: [{"data": ...}].')
        limit = conf.settings.MAX_ENQUEUE
        if len(data) > limit:
            raise _invalid(f"records: at most {limit} at a time, there are {len(data)}. Split them.", "batch_too_large")
        return [_record(number, item) for number, item in enumerate(data)]

    def to_representation(self, value: Any) -> Any:
        return value


def _record(number: int, item: Any) -> NewJob:
    if not isinstance(item, dict):
        raise _invalid(f"records[{number}] must be an object with data.")
    if "data" not in item:
        raise _invalid(f"records[{number}].data is missing (null is a value).")
    meta = item.get("meta")
    return NewJob(
        data=item["data"],
        tag=_short(number, "tag", item.get("tag"), MAX_TAG_BYTES),
        origin=_short(number, "node", item.get("node"), MAX_NODE_BYTES),
        meta=None if meta is None else _meta(number, meta),
    )


def _short(number: int, name: str, value: Any, high: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < storable(value) <= high:
        raise _invalid(f"records[{number}].{name} must be 1 to {high} bytes of text without NUL.")
    return value


def _meta(number: int, meta: Any) -> dict[str, Any]:
    if not isinstance(meta, dict):
        raise _invalid(f"records[{number}].meta must be an object.")
    if len(meta) > MAX_META_KEYS:
        raise _invalid(f"records[{number}].meta may have {MAX_META_KEYS} keys; it has {len(meta)}.")
    if payload.size(meta) > MAX_META_BYTES:
        raise _invalid(f"records[{number}].meta may have {MAX_META_BYTES} bytes. Put more into data.")
    try:
        check_meta(meta, f"records[{number}].meta")
    except InvalidOption as error:
        raise _invalid(str(error)) from error
    return meta


class Seqs(Field):
    """The numbers of jobs."""

    def to_internal_value(self, data: Any) -> list[int]:
        if not isinstance(data, list) or not data:
            raise _invalid("seqs must be a list of at least one number, as a claim gave them.")
        if len(data) > MAX_BATCH:
            raise _invalid(
                f"seqs: at most {MAX_BATCH} at a time, there are {len(data)}. Split them.", "batch_too_large"
            )
        for seq in data:
            if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq <= MAX_SEQ:
                raise _invalid(f"seqs must be integers from 0 to {MAX_SEQ}; there is {str(seq)[:40]!r}.")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


class LeaseIds(Field):
    """Lease tokens, as claims gave them."""

    def to_internal_value(self, data: Any) -> list[tuple[int, int]]:
        if not isinstance(data, list):
            raise _invalid("lease_ids must be a list with one token for each of the seqs.")
        if len(data) > MAX_BATCH:
            raise _invalid(f"lease_ids: at most {MAX_BATCH} at a time, there are {len(data)}.", "batch_too_large")
        return [_token(token) for token in data]

    def to_representation(self, value: Any) -> Any:
        return value


def _token(token: Any) -> tuple[int, int]:
    if not isinstance(token, str) or not _TOKEN.match(token):
        raise _invalid(
            f"lease_ids: a token is 'lease_' and hex digits, as a claim gave it; there is {str(token)[:80]!r}."
        )
    try:
        claim, seq = parse_token(token)
    except InvalidOption:  # well formed, but nothing that we ever gave: no lease has it
        return NO_CLAIM, NO_CLAIM
    return (claim, seq) if claim <= MAX_SEQ else (NO_CLAIM, seq)


class Nodes(Field):
    """One node, or several."""

    def to_internal_value(self, data: Any) -> list[str]:
        nodes = [data] if isinstance(data, str) else data
        if not isinstance(nodes, list) or len(nodes) > MAX_NODES:
            raise _invalid(f"node must be a name or a list of at most {MAX_NODES} names.")
        for node in nodes:
            if not isinstance(node, str) or not 0 < storable(node) <= MAX_NODE_BYTES:
                raise _invalid(f"node must be 1 to {MAX_NODE_BYTES} bytes of text without NUL.")
        return nodes

    def to_representation(self, value: Any) -> Any:
        return value


class Starts(Field):
    """Topics to watch, and where to begin."""

    def to_internal_value(self, data: Any) -> dict[str, int]:
        limit = options().MAX_WATCHED
        if not isinstance(data, dict) or not data or len(data) > limit:
            raise _invalid(f'topics must be an object of 1 to {limit} topics and numbers: {{"orders": 0}}.')
        for name, seq in data.items():
            try:
                check_name(name)
            except InvalidOption as error:
                raise _invalid(str(error)) from error
            if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq <= MAX_SEQ:
                raise _invalid(f"topics.{name} must be an integer from 0 to {MAX_SEQ}.")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


class ConfigBody(Body):
    """The configuration of a topic; what is left out has its default."""

    type = Word(tuple(QueueType.values), default="log")
    ttl_ms = Integer(high=presets.MAX_TTL_MS, default=0, help_text="Age at which records expire; 0: never.")
    cap_records = Integer(high=presets.MAX_CAP, default=0, help_text="Live records at most; 0: no cap.")
    cap_bytes = Integer(high=presets.MAX_CAP, default=0, help_text="Bytes of data and meta at most; 0: no cap.")
    discard = Word(
        tuple(Discard.values), default="old", help_text="At the cap: the oldest leave, or writes are refused."
    )
    durable = Boolean(default=False, help_text="Short for durability fsync.")
    durability = Word(tuple(Durability.values), help_text="What a commit waits for; wins over durable.", **_OPTIONAL)
    idempotency_window_ms = Integer(high=presets.DAY_MS, default=120_000)
    lease_ms = Integer(low=MIN_LEASE_MS, high=MAX_LEASE_MS, clamp=True, default=30_000)
    claim_jitter_ms = Integer(high=5_000, clamp=True, default=0, help_text="Coalescing window of claims.")
    max_deliveries = Integer(high=2**31 - 1, default=0, help_text="0: redelivered for ever.")
    dead_letter = Text(high=255, required=False, allow_null=True, default=None, help_text="A topic; null: none.")
    leases_durable = Boolean(default=False)

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
            raise _invalid('dead_letter cannot be "self": that name is reserved. Name another topic.')
        try:
            return check_name(value, "dead_letter")
        except InvalidOption as error:
            raise _invalid(str(error)) from error


class Config(Field):
    """A configuration inside another body."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise _invalid("config must be an object.")
        return ConfigBody.validated(data)

    def to_representation(self, value: Any) -> Any:
        return value


class WriteBody(Body):
    """Records to append."""

    records = Records()
    create = Boolean(  # type: ignore[assignment]  # the metaclass takes fields out: the method stays
        default=True, help_text="Whether the first write makes the topic."
    )
    config = Config(help_text="The topic's configuration, if this write makes it.", **_OPTIONAL)
    idempotency_key = Text(
        high=MAX_KEY_BYTES,
        help_text="Within the topic's window the same key appends once; wins over the header.",
        **_OPTIONAL,
    )


class DiffBody(Body):
    """Where to read, and what."""

    from_seq = Integer(default=0, help_text="Exclusive: the next_from_seq of the read before.")
    limit = CutInteger(low=1, high=MAX_READ, default=256)
    node = Nodes(help_text="Leave out the records of this node, or of these.", **_OPTIONAL)
    include_tags = Boolean(default=True)
    include_meta = Boolean(default=True)
    wait_ms = Integer(high=MAX_WAIT_MS, clamp=True, default=0, help_text="Wait so long for a record.")


class DropBody(Body):
    """Which records to delete; both conditions together narrow each other."""

    before_seq = Integer(help_text="Only records with a lower number.", **_OPTIONAL)
    match = Text(
        high=MAX_TAG_BYTES + 1, help_text='Only this tag, or with a "*" at the end tags that begin so.', **_OPTIONAL
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("before_seq") is None and attrs.get("match") is None:
            raise _invalid("Say which records to delete: before_seq, match, or both.")
        return attrs


class ClaimBody(Body):
    """Who claims, how many, for how long."""

    node = Node()
    max = CutInteger(low=0, high=MAX_BATCH, default=1, help_text="How many jobs at most.")
    lease_ms = Integer(low=MIN_LEASE_MS, high=MAX_LEASE_MS, clamp=True, help_text="Default: the topic's.", **_OPTIONAL)


class SettleBody(Body):
    """Which leases."""

    node = Node()
    seqs = Seqs(help_text=f"1 to {MAX_BATCH} jobs.")
    lease_ids = LeaseIds(help_text="The claim's tokens, one for each of the seqs, in their order.", **_OPTIONAL)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        tokens = attrs.get("lease_ids")
        if tokens is not None and len(tokens) != len(attrs["seqs"]):
            raise _invalid(
                f"lease_ids: there must be one for each of the {len(attrs['seqs'])} seqs; there are {len(tokens)}."
            )
        if tokens is not None:
            # A token of another job fences like a stale one: no lease of this job has it.
            attrs["claims"] = [
                claim if seq == asked else NO_CLAIM for (claim, seq), asked in zip(tokens, attrs["seqs"], strict=True)
            ]
        return attrs


class AckBody(SettleBody):
    """The jobs that are done."""


class NackBody(SettleBody):
    """The jobs to give back."""

    delay_ms = Integer(high=MAX_DELAY_MS, clamp=True, default=0, help_text="Hold them back so long.")


class ExtendBody(SettleBody):
    """The leases to extend."""

    lease_ms = Integer(low=MIN_LEASE_MS, high=MAX_LEASE_MS, clamp=True, help_text="From now on.")


class WatchBody(Body):
    """What to watch."""

    topics = Starts()


_RECORD = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "data": {"description": "Any JSON, at most 1 MiB together with meta."},
        "tag": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_TAG_BYTES},
        "node": {
            "type": ["string", "null"],
            "minLength": 1,
            "maxLength": MAX_NODE_BYTES,
            "description": "The producer.",
        },
        "meta": {
            "type": ["object", "null"],
            "maxProperties": MAX_META_KEYS,
            "propertyNames": {"pattern": "^([^$]|$)"},
            "description": "At most 16 KiB; names that begin with `$` are reserved.",
        },
    },
}
_SEQ = {"type": "integer", "minimum": 0, "maximum": MAX_SEQ}

describe_field(Records, lambda field: {"type": "array", "minItems": 1, "maxItems": 10_000, "items": _RECORD})
describe_field(Seqs, lambda field: {"type": "array", "minItems": 1, "maxItems": MAX_BATCH, "items": _SEQ})
describe_field(
    LeaseIds,
    lambda field: {
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_BATCH,
        "items": {"type": "string", "pattern": "^lease_[0-9a-f]{1,64}$"},
    },
)
_NODE = {"type": "string", "minLength": 1, "maxLength": MAX_NODE_BYTES}
describe_field(Nodes, lambda field: {"oneOf": [_NODE, {"type": "array", "maxItems": MAX_NODES, "items": _NODE}]})
describe_field(
    Starts,
    lambda field: {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 100,
        "propertyNames": {"pattern": NAME_PATTERN},
        "additionalProperties": _SEQ,
    },
)
describe_field(Config, lambda field: {"$ref": "#/components/schemas/ConfigBody"})
