"""Queue options: presets (named bundles), the check of every option, and what a missing queue is to be.

The definition of a missing queue has one order of precedence for all doors:

1. ``LEASEQUEUE["QUEUES"][name]`` (of the empty project);
2. a task backend of ``TASKS`` that lists the queue, in its ``QUEUES`` or in ``OPTIONS["queues"]``: the first that does;
3. the preset and options of the caller: a ``Queue(name, preset=...)``, the backend that enqueues, an HTTP request;
4. the preset of a task backend that takes any name (``QUEUES: []``), else ``LEASEQUEUE["DEFAULT_PRESET"]``.

The first that says anything of the queue says all of it: options of two of them are never mixed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils.module_loading import import_string

from ... import conf
from ...conf.queue_options import DAY_MS, OPTIONS
from ...exceptions import InvalidOption

#: A name of a queue or log.
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._:-]{0,254}\Z")
_WORD = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
#: Text that PostgreSQL can store: neither NUL nor lone surrogates.
_STORABLE = re.compile(r"[^\x00\ud800-\udfff]*\Z")

DEFAULTS: dict[str, Any] = {name: option.default for name, option in OPTIONS.items()}

#: Deliveries end when a job is given back; dead jobs stay in their queue.
_RELEASE: dict[str, Any] = {"exhaust_at": "release", "dead_letter": "self", "durability": "fsync"}
_BACKOFF: dict[str, Any] = {"backoff": "exp_full_jitter", "backoff_base_ms": 5_000, "backoff_max_ms": 900_000}

PRESETS: dict[str, dict[str, Any]] = {
    "topics": {"priority_order": "none"},
    "zaqar": {"priority_order": "none", "lease_ms": 300_000, "durability": "fsync"},
    "codeq": {
        **_RELEASE,
        **_BACKOFF,
        "requeue": "back",
        "result_ttl_ms": DAY_MS,
        "max_deliveries": 5,
        "dead_ttl_ms": DAY_MS,
        "lease_ms": 300_000,
        "dedup_until": "result_ttl",
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
        **_RELEASE,
        "priority_order": "none",
        "result_ttl_ms": 3_600_000,
        "max_deliveries": 3,
        "dead_ttl_ms": 3_600_000,
        "dedup_until": "result_ttl",
    },
    "django": {
        **_RELEASE,
        **_BACKOFF,
        "priority_min": -100,
        "priority_max": 100,
        "result_ttl_ms": DAY_MS,
        "max_deliveries": 5,
        "lease_ms": 60_000,
    },
}


def _check(name: str, value: Any) -> Any:
    """Return a value of an option, cut to its range where that is how the option works."""
    option = OPTIONS[name]
    if option.choices is not None:
        right, wanted = value in option.choices.values, f"one of {', '.join(option.choices.values)}"
    elif option.kind == "integer":
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidOption(f"{name} must be an integer from {option.low} to {option.high}; it is {value!r}.")
        cut = min(max(value, option.low), option.high)
        right, wanted = cut == value or option.clamp, f"from {option.low} to {option.high}"
        if right:
            return cut
    elif option.kind == "boolean":
        right, wanted = isinstance(value, bool), "true or false"
    elif option.kind == "topic":
        return value if value is None else check_name(value, name)
    elif option.kind == "object":
        right, wanted = isinstance(value, dict), "an object"
    else:
        right = isinstance(value, str) and _WORD.match(value) is not None
        wanted = "a name of 1 to 64 letters, digits, '.', '_' or '-'"
    if not right:
        raise InvalidOption(f"{name} must be {wanted}; it is {value!r}.")
    return value


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
        if option not in OPTIONS:
            raise InvalidOption(
                f"{option!r} is not an option of a queue; the options are {', '.join(sorted(OPTIONS))}."
            )
    return {option: _check(option, value) for option, value in given.items()}


def options_of(preset: str | None) -> dict[str, Any]:
    """Return the options that a preset names."""
    if preset is not None and (not isinstance(preset, str) or preset not in PRESETS):
        raise InvalidOption(f"{preset!r} is not a preset; the presets are {', '.join(PRESETS)}.")
    return {} if preset is None else PRESETS[preset]


def complete(preset: str | None = None, name: str | None = None, **options: Any) -> dict[str, Any]:
    """Return a full set of queue options: the defaults, the preset's over them, the given ones over both."""
    full = {**DEFAULTS, **options_of(preset), **check_options(options)}
    if full["priority_min"] > full["priority_max"]:
        raise InvalidOption("priority_min must not be above priority_max.")
    if full["concurrency"] and full["claim_jitter_ms"]:
        raise InvalidOption("a queue has concurrency or claim_jitter_ms, not both: set one of them to 0.")
    if name is not None and full["dead_letter"] == name:
        raise InvalidOption("dead_letter must be another topic, or 'self' to keep dead jobs in their own queue.")
    return full


@dataclass(frozen=True, slots=True)
class Declaration:
    """A queue that is to be there."""

    database: str
    project: str
    name: str
    preset: str | None
    options: Mapping[str, Any] = field(default_factory=dict)
    named: bool = False


@dataclass(frozen=True, slots=True)
class Definition:
    """Preset and options of a queue that is to be made. ``declared``: the settings say so, not who asks for it."""

    preset: str | None
    options: Mapping[str, Any] = field(default_factory=dict)
    declared: bool = False


def of_settings(project: str, name: str) -> Definition | None:
    """Return what ``LEASEQUEUE["QUEUES"]`` says of a queue."""
    given = conf.settings.QUEUES.get(name) if not project else None
    if given is None:
        return None
    options = dict(given)
    return Definition(options.pop("preset", conf.settings.DEFAULT_PRESET), options, True)


def of_backends() -> list[Declaration]:
    """Return what the task backends declare, in their order; tasks import the engine, so they are imported here."""
    declared: list[Declaration] = import_string("django_leasequeue.tasks.options.of_backends")()
    return declared


def define(project: str, name: str, asked: Definition | None = None, using: str | None = None) -> Definition:
    """Return what a missing queue is to be."""
    found = of_settings(project, name)
    if found is not None:
        return found
    here = {"", using}
    backends = [item for item in of_backends() if item.project == project and (using is None or item.database in here)]
    for item in backends:
        if item.name == name:
            return Definition(item.preset, item.options, True)
    if asked is not None:
        return asked
    return Definition(next((item.preset for item in backends if not item.name), conf.settings.DEFAULT_PRESET))
