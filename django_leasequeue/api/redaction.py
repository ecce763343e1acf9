"""Keeping tokens out of access logs: ``?token=`` is for browsers' event streams, and servers log the whole address."""

from __future__ import annotations

import logging
import re

#: Loggers of servers that write a line for each request.
ACCESS_LOGGERS = (
    "uvicorn.access",
    "hypercorn.access",
    "gunicorn.access",
    "daphne.access",
    "django.server",
    "django.channels.server",
)

_TOKEN = re.compile(r"([?&]token=)[^&\s\"']+")


def redact(text: str) -> str:
    """Return an address or a log line without the token in its query."""
    return _TOKEN.sub(r"\1[redacted]", text)


class RedactTokens(logging.Filter):
    """Takes tokens out of the arguments and the message of a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):
            record.msg = redact(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(redact(item) if isinstance(item, str) else item for item in record.args)
        elif isinstance(record.args, dict):
            record.args = {key: redact(item) if isinstance(item, str) else item for key, item in record.args.items()}
        return True


_FILTER = RedactTokens()


def install() -> None:
    """Redact the access logs of the common servers, whichever of them runs this process. May be called again."""
    for name in ACCESS_LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
