"""The limits of the page, each a setting: ``LEASEQUEUE["API"]["ZAQAR"] = {"MAX_MESSAGES_PER_PAGE": 50}``."""

from __future__ import annotations

from dataclasses import dataclass, fields

from django.core.exceptions import ImproperlyConfigured

from ..options import options


@dataclass(frozen=True, slots=True)
class Limits:
    """Defaults as the page has them; sizes in characters, times in seconds."""

    MAX_QUEUES_PER_PAGE: int = 20
    MAX_MESSAGES_PER_PAGE: int = 20
    MAX_MESSAGES_PER_CLAIM: int = 20
    DEFAULT_PAGE: int = 10
    MAX_QUEUE_NAME_BYTES: int = 64
    MAX_METADATA_SIZE: int = 65_536
    MAX_MESSAGES_SIZE: int = 262_144
    MIN_MESSAGE_TTL: int = 60
    MAX_MESSAGE_TTL: int = 1_209_600
    MIN_CLAIM_TTL: int = 60
    MAX_CLAIM_TTL: int = 43_200
    MIN_CLAIM_GRACE: int = 60
    MAX_CLAIM_GRACE: int = 43_200
    #: Seconds that proxies and clients may keep the home document.
    HOME_MAX_AGE: int = 86_400


def limits() -> Limits:
    """Return the limits in force.

    Raises:
        ImproperlyConfigured: a name is unknown, or a value is not a positive integer.
    """
    given = options().ZAQAR
    known = {item.name for item in fields(Limits)}
    for name, value in given.items():
        if name not in known or isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ImproperlyConfigured(
                f"LEASEQUEUE['API']['ZAQAR'][{name!r}] = {value!r}: the names are {', '.join(sorted(known))},"
                " the values positive integers."
            )
    return Limits(**given)
