"""Filters of log records: one line a message, so that no error's text forges an entry; no tokens in access logs."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

#: Our loggers: filters do not pass from a logger to those below it.
LOGGERS = (
    "django_leasequeue",
    *(
        f"django_leasequeue.{part}"
        for part in (
            "admin", "client", "devdb", "engine", "epoch", "http", "jobs", "lake", "notify", "partitions", "reaper",
            "reaper.recurring", "tasks", "testing", "worker",
        )
    ),
)  # fmt: skip

#: Ends of a line, for a terminal, a file or ``str.splitlines``.
_BREAK = re.compile(r"[ \t]*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+[ \t]*")
#: Other characters that control a terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x1f\x7f-\x9f]")


def one_line(text: str) -> str:
    """Return a text as one line: spaces for its breaks, the codes of other control characters."""
    return _written_out(_BREAK.sub(" ", text.strip()))


def indented(text: str) -> str:
    """Return a traceback with all lines indented: none looks like the beginning of an entry."""
    return "\n".join(f"  {_written_out(line)}" for line in text.splitlines())


def _written_out(line: str) -> str:
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", line)


_PLAIN = logging.Formatter()


class OneLine(logging.Filter):
    """Puts the message of a record on one line and indents its traceback, for every formatter."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if (line := one_line(message)) != message:
            record.msg, record.args = line, ()
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            record.exc_text = indented(_PLAIN.formatException(record.exc_info))
        return True


_ONE_LINE = OneLine()


def keep_to_lines(*names: str) -> None:
    """Filter the records of these loggers. May be called again."""
    for name in names:
        logging.getLogger(name).addFilter(_ONE_LINE)


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


_REDACT = RedactTokens()


def redact_access_logs() -> None:
    """Redact the access logs of the common servers, whichever of them runs this process. May be called again."""
    for name in ACCESS_LOGGERS:
        logging.getLogger(name).addFilter(_REDACT)
