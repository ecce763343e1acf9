"""What requests may say: every field with its limits, and the codes of the errors' table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import conf
from ...conf.queue_options import OPTIONS, QueueOption
from ...engine.jobs.events import MAX_EVENT_NAME
from ...engine.jobs.new_jobs import payload_too_large
from ...engine.large.writing import result_limit
from ...engine.leases.settle import result_too_large
from ...engine.limits import (
    MAX_BATCH,
    MAX_DELAY_MS,
    MAX_KEPT_NAME_BYTES,
    MAX_KEY_BYTES,
    MAX_LEASE_MS,
    MAX_SPAN_MS,
    MAX_TAG_BYTES,
    MIN_LEASE_MS,
)
from ...engine.topics.log import MAX_TIMELINE
from ...enums import Durability, PriorityOrder
from ...exceptions import InvalidOption
from .. import payload
from ..fields import Anything, Body, Boolean, CutInteger, Field, Integer, NodeName, Text, Word
from ..schema import describe_field
from .base import CONFIG_FIELDS, HTTP_DEFAULTS, check_name
from .fields import NO_TOKEN, RECORD_FIELDS, LeaseId, LeaseIds, Nodes, Records, Results, Seqs, Starts, invalid

#: The longest wait of a long-poll.
MAX_WAIT_MS = 30_000
#: The year 9999.
MAX_TIME_MS = 253_402_300_799_999
#: Records of one read, where MAX_PAGE allows so many.
MAX_READ = 1_000

_OPTIONAL: dict[str, Any] = {"required": False, "allow_null": True}


class ConfigBody(Body):
    """The configuration of a topic; what is left out has its default."""

    durable = Boolean(default=False, help_text="Short for durability fsync.")
    durability = Word(tuple(Durability.values), help_text="What a commit waits for; wins over durable.", **_OPTIONAL)
    dead_letter = Text(high=255, required=False, allow_null=True, default=None, help_text="A topic; null: none.")
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
    if option.choices is not None:
        default = HTTP_DEFAULTS.get(name, option.default)
        return Word(tuple(option.choices.values), default=default, help_text=option.help)
    if option.kind == "boolean":
        return Boolean(default=option.default, help_text=option.help)
    return Integer(low=option.low, high=option.high, clamp=option.clamp, default=option.default, help_text=option.help)


ConfigBody._declared_fields = {
    name: ConfigBody._declared_fields.get(name) or _option_field(name, OPTIONS[name]) for name in CONFIG_FIELDS
}


class Config(Field):
    """A configuration inside another body."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise invalid("config must be an object.")
        return ConfigBody.validated(data)


class WriteBody(Body):
    """Records to append."""

    bulk = True
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


class DiffBody(Body):
    """Where to read, and what."""

    from_seq = Integer(default=0, help_text="Exclusive: the next_from_seq of the read before.")
    limit = CutInteger(low=1, most=lambda: min(MAX_READ, conf.settings.MAX_PAGE), default=256)
    node = Nodes(help_text="Leave out the records of this node, or of these.", **_OPTIONAL)
    include_tags = Boolean(default=False)
    include_meta = Boolean(default=True)
    wait_ms = Integer(high=MAX_WAIT_MS, default=0, help_text="Wait so long for a record.")
    timeline = Integer(low=1, high=MAX_TIMELINE, help_text="Of the read before, to hear of a failover.", **_OPTIONAL)
    reset = Boolean(default=False, help_text="Instead of 409 log_truncated read from what is kept for sure.")


class DropBody(Body):
    """Which records to delete; both conditions together narrow each other."""

    before_seq = Integer(help_text="Only records with a lower number.", **_OPTIONAL)
    match = Text(
        high=MAX_TAG_BYTES + 1, help_text='Only this tag, or with a "*" at the end tags that begin so.', **_OPTIONAL
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("before_seq") is None and attrs.get("match") is None:
            raise invalid("Say which records to delete: before_seq, match, or both.")
        return attrs


class ClaimBody(Body):
    """Who claims, how many, for how long."""

    node = NodeName()
    max = CutInteger(low=0, most=lambda: MAX_BATCH, default=1, help_text="How many jobs at most.")
    lease_ms = Integer(low=MIN_LEASE_MS, high=MAX_LEASE_MS, clamp=True, help_text="Default: the topic's.", **_OPTIONAL)
    tag = Text(high=MAX_TAG_BYTES, help_text="Only jobs with this tag.", **_OPTIONAL)


class SettleBody(Body):
    """Which leases."""

    node = NodeName()
    seqs = Seqs(help_text=f"1 to {MAX_BATCH} jobs.")
    lease_ids = LeaseIds(help_text="The claim's tokens, one for each of the seqs, in their order.", **_OPTIONAL)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        leases = attrs.get("lease_ids")
        if leases is not None and len(leases) != len(attrs["seqs"]):
            raise invalid(
                f"lease_ids: there must be one for each of the {len(attrs['seqs'])} seqs; there are {len(leases)}."
            )
        if leases is not None:
            # The lease id of another job counts as a stale one: no lease of this job has it.
            attrs["tokens"] = [
                token if seq == asked else NO_TOKEN for (token, seq), asked in zip(leases, attrs["seqs"], strict=True)
            ]
        return attrs


class AckBody(SettleBody):
    """The jobs that are done."""

    bulk = True
    results = Results(help_text="What came of the jobs: any JSON for each of the seqs, in their order.", **_OPTIONAL)
    result_ttl_ms = Integer(
        high=MAX_SPAN_MS, help_text="How long the results are kept. Default: the job's, or the topic's.", **_OPTIONAL
    )

    @classmethod
    def check_large(cls, fields: Mapping[str, Any]) -> None:
        limit = result_limit()
        if any(payload.surely_longer(result, limit) for result in fields.get("results") or ()):
            raise result_too_large(limit)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        results = attrs.get("results")
        if results is not None and len(results) != len(attrs["seqs"]):
            raise invalid(
                f"results: there must be one for each of the {len(attrs['seqs'])} seqs; there are {len(results)}."
            )
        return super().validate(attrs)


class NackBody(SettleBody):
    """The jobs to give back."""

    delay_ms = Integer(high=MAX_DELAY_MS, clamp=True, default=0, help_text="Hold them back so long.")


class ExtendBody(SettleBody):
    """The leases to extend."""

    lease_ms = Integer(low=MIN_LEASE_MS, high=MAX_LEASE_MS, clamp=True, help_text="From now on.")


class StepBody(Body):
    """What a step has returned, and the lease under which it ran."""

    node = NodeName()
    lease_id = LeaseId(help_text="As the claim gave it.")
    value = Anything(help_text="Any JSON, as large as a result may be; null is a value.")

    bulk = True
    nulls = frozenset({"value"})


class SuspendBody(Body):
    """How long a job sleeps, or what it waits for; and its lease."""

    node = NodeName()
    lease_id = LeaseId(help_text="As the claim gave it.")
    name = Text(
        high=MAX_KEPT_NAME_BYTES,
        help_text="Of the sleep or the wait, as of a step. Default: of its event.",
        **_OPTIONAL,
    )
    sleep_ms = Integer(high=MAX_SPAN_MS, help_text="It sleeps so long.", **_OPTIONAL)
    until = Integer(high=MAX_TIME_MS, help_text="Or until this time, milliseconds since the epoch.", **_OPTIONAL)
    event = Text(high=MAX_EVENT_NAME, help_text="Or it waits for this event.", **_OPTIONAL)
    timeout_ms = Integer(high=MAX_SPAN_MS, help_text="So long at most. Default: 100 years.", **_OPTIONAL)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        given = [name for name in ("sleep_ms", "until", "event") if attrs.get(name) is not None]
        if len(given) != 1:
            raise invalid("Say how long the job sleeps, or what it waits for: one of sleep_ms, until and event.")
        if given != ["event"] and attrs.get("timeout_ms") is not None:
            raise invalid("timeout_ms: only a wait for an event has one.")
        if given != ["event"] and attrs.get("name") is None:
            raise invalid("name: a sleep needs one, so that a later delivery knows that it is over.")
        return attrs


class EmitBody(Body):
    """What the event brings to the jobs that wait for it."""

    payload = Anything(required=False, default=None, help_text="Any JSON, as large as a job's payload may be.")
    retention_ms = Integer(low=1, high=MAX_SPAN_MS, default=604_800_000, help_text="So long it is kept.")

    bulk = True
    nulls = frozenset({"payload"})


class WatchBody(Body):
    """What to watch."""

    topics = Starts()
    reset = Boolean(default=False, help_text="After a failover that may have lost records go on from what is kept.")


describe_field(Config, lambda field: {"$ref": "#/components/schemas/ConfigBody"})
