"""Fields of the bodies of topics: lists of records, jobs, leases and topics, with their limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rest_framework.exceptions import ErrorDetail, ValidationError

from ... import conf
from ...engine import NewJob, parse_lease_id
from ...engine.limits import MAX_BATCH, MAX_NODE_BYTES, MAX_SEQ, MAX_SPAN_MS, MAX_TAG_BYTES
from ...engine.metadata import MAX_TAGS, TAG_NAME, check_meta, check_tags
from ...engine.topics.log import MAX_NODES
from ...exceptions import InvalidOption
from .. import payload
from ..fields import STORABLE, Json, Parsed, storable, whole
from .base import NAME_PATTERN, check_name

MAX_META_BYTES = 16_384
MAX_META_KEYS = 64
MAX_PRIORITY = 32_767

_LEASE_ID = re.compile(r"lease_[0-9a-f]{1,64}\Z")
SEQ: Json = {"type": "integer", "minimum": 0, "maximum": MAX_SEQ}
LEASE_ID: Json = {"type": "string", "pattern": "^lease_[0-9a-f]{1,64}$"}
NODE: Json = {"type": "string", "minLength": 1, "maxLength": MAX_NODE_BYTES, "pattern": STORABLE}
NO_TOKEN = 0


def invalid(message: str, code: str = "invalid_request") -> ValidationError:
    """Return the error of a field, with a code of the errors' table."""
    return ValidationError([ErrorDetail(message, code)])


def one_each(attrs: Mapping[str, Any], name: str) -> Any:
    """Return the list of this name, if it is there: one for each of the seqs."""
    found, seqs = attrs.get(name), attrs["seqs"]
    if found is not None and len(found) != len(seqs):
        raise invalid(f"{name}: there must be one for each of the {len(seqs)} seqs; there are {len(found)}.")
    return found


def _batch(name: str, data: Any, what: str, *, least: int = 0, most: int = MAX_BATCH) -> list[Any]:
    if not isinstance(data, list) or len(data) < least:
        raise invalid(f"{name} must be a list {what}.")
    if len(data) > most:
        raise invalid(f"{name}: at most {most} at a time, there are {len(data)}. Split them.", "batch_too_large")
    return data


def _record(number: int, item: Any) -> NewJob:
    if not isinstance(item, dict):
        raise invalid(f"records[{number}] must be an object with data.")
    if "data" not in item:
        raise invalid(f"records[{number}].data is missing (null is a value).")
    found = {
        "origin" if name == "node" else name: check(f"records[{number}].{name}", item[name])
        for name, (_, check) in _OPTIONAL.items()
        if item.get(name) is not None
    }
    return NewJob(data=item["data"], **found)


def _whole(where: str, value: Any, low: int, high: int) -> int:
    number = whole(value)
    if number is None or not low <= number <= high:
        raise invalid(f"{where} must be an integer from {low} to {high}.")
    return number


def _short(where: str, value: Any, high: int) -> str:
    if not isinstance(value, str) or not 0 < storable(value) <= high:
        raise invalid(f"{where} must be 1 to {high} bytes of text without NUL.")
    return value


def _tags(where: str, tags: Any) -> dict[str, Any]:
    if isinstance(tags, dict):
        tags = {name: value if (number := whole(value)) is None else number for name, value in tags.items()}
    try:
        check_tags(tags)
    except InvalidOption as error:
        raise invalid(f"{where}: {error}") from error
    return dict(tags)


def _meta(where: str, meta: Any) -> dict[str, Any]:
    if not isinstance(meta, dict):
        raise invalid(f"{where} must be an object.")
    if len(meta) > MAX_META_KEYS:
        raise invalid(f"{where} may have {MAX_META_KEYS} keys; it has {len(meta)}.")
    if len(payload.dumps(meta)) > MAX_META_BYTES:
        raise invalid(f"{where} may have {MAX_META_BYTES} bytes. Put more into data.")
    try:
        check_meta(meta, where)
    except InvalidOption as error:
        raise invalid(str(error)) from error
    return meta


def _text(high: int, **about: str) -> tuple[Json, Callable[[str, Any], Any]]:
    size = {"minLength": 1, "maxLength": high, "pattern": STORABLE}
    return {"type": ["string", "null"], **size, **about}, partial(_short, high=high)


def _number(low: int, high: int, said: str) -> tuple[Json, Callable[[str, Any], Any]]:
    schema: Json = {"type": ["integer", "null"], "minimum": low, "maximum": high, "description": said}
    return schema, partial(_whole, low=low, high=high)


_TAGS: Json = {
    "type": ["object", "null"], "maxProperties": MAX_TAGS, "propertyNames": {"pattern": TAG_NAME},
    "additionalProperties": {
        "type": ["string", "integer", "boolean"], "minLength": 1, "maxLength": MAX_TAG_BYTES, "pattern": STORABLE,
        "minimum": -(2**63), "maximum": 2**63 - 1,
    },
    "description": "Names and values to find the job by; it has them as `$tags` in its `meta`. An extension.",
}  # fmt: skip
_META: Json = {
    "type": ["object", "null"], "maxProperties": MAX_META_KEYS, "propertyNames": {"pattern": "^([^$]|$)"},
    "description": f"At most {MAX_META_BYTES:,} bytes; names that begin with `$` are reserved.",
}  # fmt: skip
#: The fields of a record beside its data: their schemas, and what checks them.
_OPTIONAL: dict[str, tuple[Json, Callable[[str, Any], Any]]] = {
    "tag": _text(MAX_TAG_BYTES),
    "tags": (_TAGS, _tags),
    "node": _text(MAX_NODE_BYTES, description="The producer."),
    "meta": (_META, _meta),
    "priority": _number(-MAX_PRIORITY, MAX_PRIORITY, "Of a job, where the topic has a `priority_order`. An extension."),
    "delay_ms": _number(0, MAX_SPAN_MS, "How long a job is held back before it can be claimed. An extension."),
}
_DATA: Json = {
    "description": lambda: f"Any JSON, at most {conf.settings.MAX_PAYLOAD_BYTES:,} bytes together with meta."
}
_FIELDS: Json = {"data": _DATA, **{name: schema for name, (schema, _) in _OPTIONAL.items()}}
RECORD_FIELDS = frozenset(_FIELDS)
RECORD: Json = {"type": "object", "required": ["data"], "properties": _FIELDS}


def _records(data: Any) -> list[NewJob]:
    what = 'of at least one record: [{"data": ...}]'
    records = _batch("records", data, what, least=1, most=conf.settings.MAX_ENQUEUE)
    return [_record(number, item) for number, item in enumerate(records)]


def _seqs(data: Any) -> list[int]:
    seqs = _batch("seqs", data, "of at least one number, as a claim gave them", least=1)
    numbers = [whole(seq) for seq in seqs]
    found = [number for number in numbers if number is not None and 0 <= number <= MAX_SEQ]
    if len(found) < len(seqs):
        wrong = next(seq for seq, number in zip(seqs, numbers, strict=True) if number not in found)
        raise invalid(f"seqs must be integers from 0 to {MAX_SEQ}; there is {str(wrong)[:40]!r}.")
    return found


def parse_lease(lease_id: Any) -> tuple[int, int]:
    """Return (token, number) of a lease id; ``NO_TOKEN`` if the id names no lease."""
    if not isinstance(lease_id, str) or not _LEASE_ID.match(lease_id):
        raise invalid(f"A lease id is 'lease_' and hex digits, as a claim gave it; there is {str(lease_id)[:80]!r}.")
    try:
        token, seq = parse_lease_id(lease_id)
    except InvalidOption:  # well formed, but nothing that we ever gave: no lease has it
        return NO_TOKEN, NO_TOKEN
    return (token, seq) if token <= MAX_SEQ else (NO_TOKEN, seq)


def _lease_ids(data: Any) -> list[tuple[int, int]]:
    return [parse_lease(lease_id) for lease_id in _batch("lease_ids", data, "with one for each of the seqs")]


def _results(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise invalid("results must be a list with one result for each of the seqs; null where there is none.")
    return data


def _nodes(data: Any) -> list[str]:
    nodes = [data] if isinstance(data, str) else data
    if not isinstance(nodes, list) or len(nodes) > MAX_NODES:
        raise invalid(f"node must be a name or a list of at most {MAX_NODES} names.")
    return [_short("node", node, MAX_NODE_BYTES) for node in nodes]


def _starts(data: Any) -> dict[str, int]:
    limit = conf.settings.API.MAX_WATCHED
    if not isinstance(data, dict) or not data or len(data) > limit:
        raise invalid(f'topics must be an object of 1 to {limit} topics and numbers: {{"orders": 0}}.')
    for name, seq in data.items():
        try:
            check_name(name)
        except InvalidOption as error:
            raise invalid(str(error)) from error
        data[name] = _whole(f"topics.{name}", seq, 0, MAX_SEQ)
    return data


def _list_of(items: Json, most: int | Callable[[], int] = MAX_BATCH) -> Json:
    return {"type": "array", "minItems": 1, "maxItems": most, "items": items}


_RESULT: Json = {"description": lambda: f"At most {conf.settings.MAX_RESULT_BYTES:,} bytes of JSON."}
_WATCHED: Json = {
    "type": "object", "minProperties": 1, "maxProperties": lambda: conf.settings.API.MAX_WATCHED,
    "propertyNames": {"pattern": NAME_PATTERN}, "additionalProperties": SEQ,
}  # fmt: skip
Records = partial(Parsed, _list_of(RECORD, lambda: conf.settings.MAX_ENQUEUE), _records)
JobSeqs = partial(Parsed, _list_of(SEQ), _seqs)
#: A lease id, as a claim gave it, as (token, seq); and a list of them.
LeaseId, LeaseIds = partial(Parsed, LEASE_ID, parse_lease), partial(Parsed, _list_of(LEASE_ID), _lease_ids)
Results = partial(Parsed, _list_of(_RESULT), _results)
Nodes = partial(Parsed, {"oneOf": [NODE, {"type": "array", "maxItems": MAX_NODES, "items": NODE}]}, _nodes)
Starts = partial(Parsed, _WATCHED, _starts)
