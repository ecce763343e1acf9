"""The settings of the HTTP doors: ``LEASEQUEUE["API"] = {...}``, with a default for each key."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .. import conf


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """Every key of ``LEASEQUEUE["API"]`` and its default."""

    #: Who may come in: "keys" (a key, or the host's authentication), "open" (everybody), "auto" (open with DEBUG).
    ACCESS: str = "auto"
    #: The host's own DRF authentication classes, by dotted path, asked after our keys.
    AUTHENTICATION_CLASSES: list[str] = field(default_factory=list)
    #: Dotted path of ``grants(request) -> Access | None`` for requests that the host authenticated; None: our default.
    GRANTS: str | None = None
    #: Seconds that a key is trusted without looking at the database again: how long a revoked one may still work.
    KEY_CACHE_SECONDS: float = 2.0
    #: Keys that nobody knows which one client's address may try in a minute, counted by each server process; None: any.
    UNKNOWN_KEYS_PER_MINUTE: int | None = 300
    #: Proxies of ours before the server: so many last entries of X-Forwarded-For are theirs. 0: the header is not read.
    PROXIES: int = 0
    #: Requests a second of a key that names no rate; None: not limited.
    RATE_PER_SECOND: int | None = None
    #: The Django cache that counts requests. Server processes count together only if they share it.
    THROTTLE_CACHE: str = "default"
    #: Bytes of a request's body.
    MAX_BODY_BYTES: int = 67_108_864
    #: How deep JSON may be nested.
    MAX_DEPTH: int = 100
    #: Seconds that the counters in answers about long queues may be old; 0: count for every answer.
    COUNT_SECONDS: float = 1.0
    #: Streams (work, watch) of one server process. A key gets another one while it has fewer than are free.
    MAX_STREAMS: int = 2_000
    #: Topics of one watch.
    MAX_WATCHED: int = 100
    #: Seconds of silence on a stream before a heartbeat.
    HEARTBEAT_SECONDS: float = 15.0
    #: Seconds between two looks whether the key of an open stream may still see what it streams.
    RECHECK_SECONDS: float = 10.0
    #: Seconds that the URL of a watch can be opened.
    WATCH_SECONDS: int = 86_400
    #: Limits of the door ``/v1/queues``, see ``api.zaqar.limits``.
    ZAQAR: dict[str, int] = field(default_factory=dict)


#: Options that are numbers: (the types that they may have, the least value, in words).
_NUMBERS: dict[str, tuple[tuple[type, ...], float, str]] = {
    "UNKNOWN_KEYS_PER_MINUTE": ((int, NoneType), 1, "an integer from 1, or None"),
    "PROXIES": ((int,), 0, "an integer from 0"),
    "RECHECK_SECONDS": ((int, float), 0.1, "seconds, 0.1 or more"),
    "MAX_STREAMS": ((int,), 0, "an integer from 0"),
    "MAX_DEPTH": ((int,), 1, "an integer from 1"),
}


def _check_numbers(made: ApiOptions) -> None:
    for name, (kinds, low, words) in _NUMBERS.items():
        value: Any = getattr(made, name)
        right = isinstance(value, kinds) and not isinstance(value, bool)
        if not right or (value is not None and value < low):
            raise ImproperlyConfigured(f"LEASEQUEUE['API'][{name!r}] must be {words}; it is {value!r}.")


_KNOWN = frozenset(item.name for item in fields(ApiOptions))
_read: tuple[dict[str, Any], ApiOptions] | None = None


def options() -> ApiOptions:
    """Return the host's settings over the defaults.

    Raises:
        ImproperlyConfigured: a key is unknown, ``ACCESS`` is not one of its words, or a number is out of range.
    """
    global _read
    given: dict[str, Any] = conf.settings.API
    if _read is None or _read[0] is not given:
        unknown = sorted(set(given) - _KNOWN)
        if unknown:
            raise ImproperlyConfigured(
                f"LEASEQUEUE['API'] has unknown keys: {', '.join(unknown)}. The keys are {', '.join(sorted(_KNOWN))}."
            )
        made = ApiOptions(**given)
        if made.ACCESS not in ("auto", "keys", "open"):
            raise ImproperlyConfigured("LEASEQUEUE['API']['ACCESS'] must be 'auto', 'keys' or 'open'.")
        _check_numbers(made)
        _read = (given, made)
    return _read[1]
