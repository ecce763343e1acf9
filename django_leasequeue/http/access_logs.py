"""Tokens stay out of access logs: ``?token=`` is for browsers' event streams, and servers log the whole address."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

ACCESS_LOGGERS = (
    "uvicorn.access", "hypercorn.access", "gunicorn.access", "daphne.access", "django.server", "django.channels.server",
)  # fmt: skip

# A query stands behind an address, or alone (gunicorn's %(q)s).
_TOKEN = re.compile(r"((?:^|[?&])token=)[^&\s\"']+")


def redact(value: Any) -> Any:
    """Return an address or a log line without the token in its query; what is no text, as it is."""
    return _TOKEN.sub(r"\1[redacted]", value) if isinstance(value, str) else value


class _Redacted(dict[str, Any]):
    """A server's own log atoms, their tokens masked; gunicorn's answer for names that they do not list as well."""

    def __init__(self, atoms: Mapping[str, Any]) -> None:
        super().__init__({name: redact(value) for name, value in atoms.items()})
        self._atoms = atoms

    def __missing__(self, name: str) -> Any:
        return redact(self._atoms[name])


class RedactTokens(logging.Filter):
    """Takes tokens out of the arguments and the message of a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = redact(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(redact(item) for item in record.args)
        elif isinstance(record.args, Mapping) and not isinstance(record.args, _Redacted):
            record.args = _Redacted(record.args)
        return True


_FILTER = RedactTokens()


def redact_access_logs() -> None:
    """Redact the access logs of the common servers, whichever of them runs this process. May be called again."""
    for name in ACCESS_LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
