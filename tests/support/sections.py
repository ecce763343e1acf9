"""The parts of ``LEASEQUEUE``."""

from dataclasses import is_dataclass
from typing import Any

from django_leasequeue.conf import Settings, keys


def sections(kind: type[Any] = Settings, name: str = "LEASEQUEUE") -> dict[str, type[Any]]:
    """Return each dataclass of settings by the key that holds it, those inside of others too."""
    found = {name: kind}
    for key, (_, hint) in keys(kind).items():
        if is_dataclass(hint):
            found |= sections(hint, key)  # type: ignore[arg-type]  # it is a class, not an instance
    return found
