"""Presets: named bundles of queue options, and the check of every option."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ...enums import Backoff, DedupUntil, Discard, Durability, ExhaustAt, LateAck, PriorityOrder, QueueType, Requeue
from ...exceptions import InvalidOption

#: A name of a queue or log.
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._:-]{0,254}\Z")
_WORD = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
#: Text that PostgreSQL can store: neither NUL nor lone surrogates.
_STORABLE = re.compile(r"[^\x00\ud800-\udfff]*\Z")

DAY_MS = 86_400_000

#: The options of a queue nobody configured.
DEFAULTS: dict[str, Any] = {
    "type": "queue",
    "requeue": "original",
    "priority_order": "desc",
    "priority_min": 0,
    "priority_max": 9,
    "lease_ms": 30_000,
    "late_ack": "reject",
    "leases_durable": False,
    "claim_jitter_ms": 0,
    "concurrency": 0,
    "max_deliveries": 0,
    "exhaust_at": "claim",
    "dead_letter": None,
    "dead_ttl_ms": 0,
    "backoff": "none",
    "backoff_base_ms": 1_000,
    "backoff_max_ms": 3_600_000,
    "result_ttl_ms": 0,
    "dedup_until": "terminal",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durability": "disk",
    "idempotency_window_ms": 120_000,
    "log_enqueued": True,
    "serializer": "json",
    "metadata": {},
}

PRESETS: dict[str, dict[str, Any]] = {
    "topics": {"priority_order": "none"},
    "zaqar": {"priority_order": "none", "lease_ms": 300_000, "durability": "fsync"},
    "codeq": {
        "requeue": "back",
        "result_ttl_ms": DAY_MS,
        "max_deliveries": 5,
        "exhaust_at": "release",
        "dead_letter": "self",
        "dead_ttl_ms": DAY_MS,
        "backoff": "exp_full_jitter",
        "backoff_base_ms": 5_000,
        "backoff_max_ms": 900_000,
        "lease_ms": 300_000,
        "dedup_until": "result_ttl",
        "durability": "fsync",
    },
    "jqueue": {
        "priority_order": "asc",
        "priority_min": -32_767,
        "priority_max": 32_767,
        "lease_ms": 300_000,
        "late_ack": "accept",
        "durability": "fsync",
    },
    "jobqueue": {
        "priority_order": "none",
        "result_ttl_ms": 3_600_000,
        "max_deliveries": 3,
        "exhaust_at": "release",
        "dead_letter": "self",
        "dead_ttl_ms": 3_600_000,
        "dedup_until": "result_ttl",
        "durability": "fsync",
    },
    "django": {
        "priority_min": -100,
        "priority_max": 100,
        "result_ttl_ms": DAY_MS,
        "max_deliveries": 5,
        "exhaust_at": "release",
        "dead_letter": "self",
        "backoff": "exp_full_jitter",
        "backoff_base_ms": 5_000,
        "backoff_max_ms": 900_000,
        "lease_ms": 60_000,
        "durability": "fsync",
    },
}


def _one_of(*values: str) -> Callable[[str, Any], Any]:
    def check(option: str, value: Any) -> Any:
        if value not in values:
            raise InvalidOption(f"{option} must be one of {', '.join(values)}; it is {value!r}.")
        return value

    return check


def _integer(low: int, high: int, *, clamp: bool = False) -> Callable[[str, Any], Any]:
    def check(option: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidOption(f"{option} must be an integer from {low} to {high}; it is {value!r}.")
        if clamp:
            return min(max(value, low), high)
        if not low <= value <= high:
            raise InvalidOption(f"{option} must be from {low} to {high}; it is {value!r}.")
        return value

    return check


def _boolean(option: str, value: Any) -> Any:
    if not isinstance(value, bool):
        raise InvalidOption(f"{option} must be true or false; it is {value!r}.")
    return value


def _topic(option: str, value: Any) -> Any:
    if value is not None:
        check_name(value, option)
    return value


def _mapping(option: str, value: Any) -> Any:
    if not isinstance(value, dict):
        raise InvalidOption(f"{option} must be an object; it is {value!r}.")
    return value


def _text(option: str, value: Any) -> Any:
    if not isinstance(value, str) or not _WORD.match(value):
        raise InvalidOption(f"{option} must be a name of 1 to 64 letters, digits, '.', '_' or '-'; it is {value!r}.")
    return value


#: The longest TTL: ten years.
MAX_TTL_MS = 10 * 366 * DAY_MS
#: The largest cap.
MAX_CAP = 2**62

CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "type": _one_of(*QueueType.values),
    "requeue": _one_of(*Requeue.values),
    "priority_order": _one_of(*PriorityOrder.values),
    "priority_min": _integer(-32_767, 32_767),
    "priority_max": _integer(-32_767, 32_767),
    "lease_ms": _integer(100, DAY_MS, clamp=True),
    "late_ack": _one_of(*LateAck.values),
    "leases_durable": _boolean,
    "claim_jitter_ms": _integer(0, 5_000, clamp=True),
    "concurrency": _integer(0, 10_000),
    "max_deliveries": _integer(0, 2**31 - 1),
    "exhaust_at": _one_of(*ExhaustAt.values),
    "dead_letter": _topic,
    "dead_ttl_ms": _integer(0, MAX_TTL_MS),
    "backoff": _one_of(*Backoff.values),
    "backoff_base_ms": _integer(0, DAY_MS),
    "backoff_max_ms": _integer(0, DAY_MS),
    "result_ttl_ms": _integer(0, MAX_TTL_MS),
    "dedup_until": _one_of(*DedupUntil.values),
    "ttl_ms": _integer(0, MAX_TTL_MS),
    "cap_records": _integer(0, MAX_CAP),
    "cap_bytes": _integer(0, MAX_CAP),
    "discard": _one_of(*Discard.values),
    "durability": _one_of(*Durability.values),
    "idempotency_window_ms": _integer(0, DAY_MS),
    "log_enqueued": _boolean,
    "serializer": _text,
    "metadata": _mapping,
}


def check_name(name: Any, what: str = "the name of a queue") -> str:
    """Return ``name`` if it can name a queue."""
    if not isinstance(name, str) or not NAME.match(name):
        raise InvalidOption(
            f"{what} must be 1 to 255 letters, digits, '.', '_', ':' or '-', beginning with none of '.' and ':';"
            f" it is {name!r}."
        )
    return name


def check_project(project: Any) -> str:
    """Return ``project`` if it can name a tenant: any string up to 256 characters, without NUL."""
    if not isinstance(project, str) or len(project) > 256 or not _STORABLE.match(project):
        raise InvalidOption(f"the project must be a string of at most 256 characters; it is {project!r}.")
    return project


def check_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options, checked and clamped (``lease_ms`` and ``claim_jitter_ms`` are clamped)."""
    for option in given:
        if option not in CHECKS:
            raise InvalidOption(f"{option!r} is not an option of a queue; the options are {', '.join(sorted(CHECKS))}.")
    return {option: CHECKS[option](option, value) for option, value in given.items()}


def complete(preset: str | None = None, name: str | None = None, **options: Any) -> dict[str, Any]:
    """Return a full set of queue options: the defaults, the preset's over them, the given ones over both."""
    if preset is not None and (not isinstance(preset, str) or preset not in PRESETS):
        raise InvalidOption(f"{preset!r} is not a preset; the presets are {', '.join(PRESETS)}.")
    full = {**DEFAULTS, **(PRESETS[preset] if preset else {}), **check_options(options)}
    if full["priority_min"] > full["priority_max"]:
        raise InvalidOption("priority_min must not be above priority_max.")
    if full["concurrency"] and full["claim_jitter_ms"]:
        raise InvalidOption("a queue has concurrency or claim_jitter_ms, not both: set one of them to 0.")
    if name is not None and full["dead_letter"] == name:
        raise InvalidOption("dead_letter must be another topic, or 'self' to keep dead jobs in their own queue.")
    return full
