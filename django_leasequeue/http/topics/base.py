"""The base of the views of topics: names, configuration, counters beside the answers; jobs and records as JSON."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from inspect import signature
from typing import Annotated, Any, NotRequired, TypedDict, Unpack

from rest_framework.request import Request

from ... import conf
from ...conf import process
from ...conf.queue_options import OPTIONS
from ...engine import LeasedJob, Operation, make_lease_id
from ...engine.limits import MAX_NODE_BYTES
from ...engine.queues import stats
from ...engine.topics.log import Gap, TopicRecord
from ...engine.topics.topics import TopicLook, look
from ...enums import Durability
from ...exceptions import InvalidOption, QueueNotFound
from .. import payload, schema
from ..access import Access
from ..auth import require
from ..errors import ApiError
from ..fields import STORABLE, Json, storable
from ..schema import F, Parameter
from ..views import MAX_WARNINGS, ApiView, T

#: Seconds that a count may take to be made every time.
CHEAP = 0.002
#: How much longer than it took a count is kept.
FACTOR = 20.0


@dataclass(slots=True)
class TopicFigures:
    """Counters of a topic after a call; until when (monotonic) they are kept, and whether they are counted now."""

    ready: int
    in_flight: int
    count: int
    until: float
    counting: bool = False


_kept: process.Memory[tuple[str, str, str], TopicFigures] = process.Memory()


class Changed(TypedDict, total=False):
    """The changes of a call to a topic's counters; ``recount``: the topic has to be counted anew."""

    ready: int
    in_flight: int
    count: int
    recount: bool


def note_figures(using: str, project: str, topic: str, **changed: Unpack[Changed]) -> TopicFigures | None:
    """Note on the counters of a topic that are kept what this process has changed, and return them."""
    kept = _kept.get((using, project, topic))
    if kept is not None:
        kept.ready = max(0, kept.ready + changed.get("ready", 0))
        kept.in_flight = max(0, kept.in_flight + changed.get("in_flight", 0))
        kept.count = max(0, kept.count + changed.get("count", 0))
        if changed.get("recount"):
            kept.until = 0.0
    return kept


#: A name of a topic; other APIs allow more.
NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"
_NAME = re.compile(NAME_PATTERN.removesuffix("$") + r"\Z")

#: The fields of a configuration that are queue options of the same name.
_SAME = tuple(name for name, option in OPTIONS.items() if option.http)
#: Fields that the protocol does not have: shown where they are not as the protocol is without them.
_EXTENSIONS = {"priority_order": "none"}
#: Every field of a configuration, in the order in which the documents show them.
CONFIG_FIELDS = (*_SAME, "durable", *_EXTENSIONS)
#: The fields that name another topic: a key with prefixes may name those alone that it may use.
NAMES_TOPIC = ("dead_letter",)


def check_name(name: str, what: str = "The name of a topic") -> str:
    """Return ``name`` if it can name a topic; else raise ``InvalidOption``."""
    if not _NAME.match(name):
        raise InvalidOption(
            f"{what} must be 1 to 255 letters, digits, '.', '_', ':' or '-', beginning with a letter or digit; it is"
            f" {name[:300]!r}."
        )
    return name


def to_config(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a topic with these options, every field of it."""
    config = {name: options[name] for name in _SAME} | {"durable": options["durability"] == Durability.FSYNC}
    return config | {name: options[name] for name, usual in _EXTENSIONS.items() if options[name] != usual}


#: Seconds that a topic's options are taken as known: for whether a commit is measured, and what an answer warns of.
_FRESH = 5.0
_seen: process.Memory[tuple[str, str, str], tuple[TopicLook, float]] = process.Memory()


class TopicView(ApiView):
    def check_address(self, request: Request, topic: str | None) -> None:
        check_name(topic or "")

    @property
    def node(self) -> str:
        node = self.request.GET.get(NODE.name, "")
        if not 0 < storable(node) <= MAX_NODE_BYTES:
            raise ApiError(400, "invalid_request", f"node must be the worker's name, 1 to {MAX_NODE_BYTES} bytes.")
        return node

    def queue_options(self, config: Mapping[str, Any], topic: str) -> dict[str, Any]:
        """Return the queue options that a valid configuration of the topic stands for."""
        for name in NAMES_TOPIC:
            require(self.access, frozenset(), config.get(name))
        if config.get("dead_letter") == topic:
            raise InvalidOption("dead_letter must be another topic than the topic itself.")
        options = {name: config[name] for name in (*_SAME, *_EXTENSIONS) if name in config}
        if options.get("durability") is None:  # (which wins)
            options["durability"] = str(Durability.FSYNC if config.get("durable") else Durability.DISK)
        return options

    async def look(self, topic: str, *, leases: bool = False) -> TopicLook:
        found = await self.runner.run(look(topic, project=self.project, leases=leases))
        _seen[self.runner.using, self.project, topic] = (found, time.monotonic())
        return found

    def forget(self, topic: str) -> None:
        """Forget what was known of the topic: this process has changed it."""
        _seen.pop((self.runner.using, self.project, topic), None)

    async def recent_look(self, topic: str) -> TopicLook | None:
        """Return what a look at the topic has found in the last seconds, or finds now; ``None`` if it is not there."""
        found = _seen.get((self.runner.using, self.project, topic))
        if found is not None and time.monotonic() - found[1] <= _FRESH:
            return found[0]
        try:
            return await self.look(topic)
        except QueueNotFound:
            return None

    async def warn(self, topic: str, of: Callable[[TopicLook], str | None]) -> None:
        """Add to the answer what ``of`` says of the topic, if anything: it is looked at before something is said."""
        known = await self.recent_look(topic)
        if known is None or of(known) is None:
            return
        with suppress(QueueNotFound):  # deleted meanwhile
            self.warnings += filter(None, [of(await self.look(topic))])

    async def run_durably(self, topic: str, operation: Operation[T]) -> tuple[T, float]:
        """Run an operation whose commit follows the topic's durability; return its value and the flush's time."""
        known = await self.recent_look(topic)
        if known is None or known.durability != Durability.FSYNC:
            return await self.runner.run(operation, large=self.large), 0.0
        value, took = await self.runner.run_flushed(operation, large=self.large)
        return value, max(round(took, 3), 0.001)

    async def figures(self, topic: str, *, drained: bool = False, **changed: Unpack[Changed]) -> TopicFigures:
        """Return the topic's counters after this call, which changed them so; an expensive count is kept for a moment.

        ``drained``: the call took all that it could, so what is kept as ready beyond that is elsewhere.
        """
        place = (self.runner.using, self.project, topic)
        kept = note_figures(*place, **changed)
        if kept is not None:
            if kept.counting or (time.monotonic() < kept.until and not (drained and kept.ready)):
                return kept
            kept.counting = True
        try:
            began = time.monotonic()
            found = await self.runner.run(stats.counts(topic, project=self.project))
            took = time.monotonic() - began
        finally:
            if kept is not None:
                kept.counting = False
        figures = TopicFigures(
            found.ready,
            found.in_flight,
            found.ready + found.in_flight + found.delayed + found.dead + found.records,
            began + took + min(took * FACTOR, conf.settings.API.COUNT_SECONDS),
        )
        if took <= CHEAP:
            _kept.pop(place, None)
        else:
            _kept[place] = figures
        return figures


Count = Annotated[int, {"minimum": 0}]
Time = Annotated[int, "Milliseconds since the epoch."]
Seqs = list[Count]
Duration = Annotated[float, {"minimum": 0}]


class OfTopic(TypedDict):
    topic: str


class Performance(TypedDict):
    server_total_ms: Annotated[Duration, "From the request's arrival to this answer."]
    fsync_ms: NotRequired[Annotated[Duration, "Waiting for the disk; 0 where nothing waited."]]
    throttle_wait_ms: NotRequired[Annotated[Duration, "Always 0: too many requests get a 429."]]


_IGNORED = "What of the request was ignored or cut; left out when there is nothing to say."


class Envelope(TypedDict):
    """What every answer has beside its own fields."""

    performance: Performance
    warnings: NotRequired[Annotated[list[str], {"minItems": 1, "maxItems": MAX_WARNINGS}, _IGNORED]]


def endpoint(name: str, summary: str, *, parameters: Sequence[Parameter] = (), **said: Any) -> Callable[[F], F]:
    """Say all of one operation of this API (``schema.endpoint``): its topic is a parameter, its module its ``tag``."""

    def apply(method: F) -> F:
        given = [TOPIC, *parameters] if "topic" in signature(method).parameters else parameters
        said.setdefault("tag", method.__module__.rpartition(".")[2].replace("catalog", "topics"))
        return schema.endpoint(name, summary, envelope=Envelope, parameters=given, **said)(method)

    return apply


TOPIC = Parameter(
    "topic", {"type": "string", "pattern": NAME_PATTERN, "maxLength": 255}, "The topic's name.", where="path"
)
NODE = Parameter(
    "node",
    {"type": "string", "minLength": 1, "maxLength": MAX_NODE_BYTES, "pattern": STORABLE},
    "The worker's name.",
    required=True,
)
TOKEN = Parameter("token", {"type": "string"}, "The key, for browsers only: addresses end up in logs.")


#: Of the kinds of options, and of choices by their names.
_SCHEMAS: dict[str, Json] = {
    "integer": {"type": "integer", "minimum": 0},
    "boolean": {"type": "boolean"},
    "topic": {"type": ["string", "null"]},
    **{name: {"type": "string", "enum": option.choices.values} for name, option in OPTIONS.items() if option.choices},
}
_CONFIG: Json = {name: _SCHEMAS.get(name) or _SCHEMAS[OPTIONS[name].kind] for name in _SAME}
_CONFIG["durable"] = _SCHEMAS["boolean"]
_ORDER: Json = {"type": "string", "enum": ["desc", "asc"], "description": "Left out where it is `none`."}
Config = Annotated[dict[str, Any], {"required": [*_CONFIG], "properties": {**_CONFIG, "priority_order": _ORDER}}]
Record = TypedDict("Record", {
    "$seq": Count, "$ts": Time, "data": Any, "$tag": NotRequired[str], "$node": NotRequired[str],
    "meta": NotRequired[dict[str, Any]],
})  # fmt: skip
LeasedRecord = TypedDict("LeasedRecord", {
    "$seq": Count, "lease_id": Annotated[str, {"pattern": "^lease_[0-9a-f]+$"}], "deadline": Time, "$ts": Time,
    "deliveries": Annotated[int, {"minimum": 1}], "data": Any, "$tag": NotRequired[str],
    "meta": NotRequired[dict[str, Any]],
})  # fmt: skip


class Tombstone(TypedDict):
    """What a reader missed."""

    gap_from: Count
    gap_to: Count
    reason: Annotated[str, {"enum": ["cap", "ttl"]}]
    missed_estimate: Count


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def milliseconds(moment: datetime) -> int:
    """Return a time in milliseconds since the epoch."""
    return (moment - _EPOCH) // _MS


def leased(job: LeasedJob) -> LeasedRecord:
    """Return a job as a claim gives it."""
    answer: LeasedRecord = {
        "$seq": job.seq,
        "lease_id": make_lease_id(job.token, job.seq),
        # (rounded to microseconds first, as a datetime is)
        "deadline": round(job.deadline_epoch * 1_000_000) // 1_000,
        "$ts": round(job.created_epoch * 1_000_000) // 1_000,
        "deliveries": job.deliveries,
        "data": payload.raw(job.data_json),
    }
    if job.tag is not None:
        answer["$tag"] = job.tag
    if job.meta_json is not None:
        answer["meta"] = payload.raw(job.meta_json)
    return answer


def record(row: TopicRecord, topic: str, access: Access, *, tags: bool = True, meta: bool = True) -> Record:
    """Return a record as diff and watch give it to a caller."""
    data = access.show(row.data_json, task=row.name, queue=topic)
    answer: Record = {"$seq": row.seq, "$ts": milliseconds(row.created_at), "data": data}
    if tags and row.tag is not None:
        answer["$tag"] = row.tag
    if row.origin is not None:
        answer["$node"] = row.origin
    if meta and row.meta_json is not None:
        answer["meta"] = access.show(row.meta_json, task=row.name, queue=topic, kind="meta")
    return answer


def tombstone(gap: Gap) -> Tombstone:
    """Return a gap as diff and watch tell it."""
    return {"gap_from": gap.start, "gap_to": gap.end, "reason": gap.reason, "missed_estimate": gap.missed}
