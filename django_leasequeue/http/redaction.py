"""Keeping tokens out of access logs: ``?token=`` is for browsers' event streams, and servers log the whole address."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

#: Loggers of servers that write a line for each request.
ACCESS_LOGGERS = (
    "uvicorn.access",
    "hypercorn.access",
    "gunicorn.access",
    "daphne.access",
    "django.server",
    "django.channels.server",
)

# A query stands behind an address, or alone (gunicorn's %(q)s).
_TOKEN = re.compile(r"((?:^|[?&])token=)[^&\s\"']+")


def redact(text: str) -> str:
    """Return an address or a log line without the token in its query."""
    return _TOKEN.sub(r"\1[redacted]", text)


def _plain(value: Any) -> Any:
    return redact(value) if isinstance(value, str) else value


class _Redacted(Mapping[str, Any]):
    """What a server's own mapping says of each name, without tokens.

    Servers answer for names that they do not list (gunicorn: any header, and ``-`` for what is not there): each name is
    asked of their mapping.
    """

    def __init__(self, atoms: Mapping[str, Any]) -> None:
        self._atoms = atoms

    def __getitem__(self, name: str) -> Any:
        return _plain(self._atoms[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._atoms)

    def __len__(self) -> int:
        return len(self._atoms)


class RedactTokens(logging.Filter):
    """Takes tokens out of the arguments and the message of a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):
            record.msg = redact(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(_plain(item) for item in record.args)
        elif isinstance(record.args, Mapping) and not isinstance(record.args, _Redacted):
            record.args = _Redacted(record.args)
        return True


_FILTER = RedactTokens()


def install() -> None:
    """Redact the access logs of the common servers, whichever of them runs this process. May be called again."""
    for name in ACCESS_LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
