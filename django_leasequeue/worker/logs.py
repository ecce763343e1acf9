"""Log lines of a worker: a sentence and its fields, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

LOGGER = "django_leasequeue"


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what was given as ``extra``, without what is ``None``."""
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD and value is not None}


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class TextFormatter(logging.Formatter):
    """``time LEVEL part: sentence key=value ...``, and the traceback on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={_word(value)}" for key, value in fields_of(record).items())
        part = record.name.removeprefix(LOGGER + ".")
        line = f"{_time_of(record)} {record.levelname} {part}: {record.getMessage()}"
        if fields:
            line += " " + fields
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


class JSONFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info is not None:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def _word(value: Any) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(char in text for char in ' "=\n') else text


def set_up_logging(*, as_json: bool, verbosity: int) -> None:
    """Send our log lines to standard error, unless the host's settings say where they go.

    Args:
        as_json: one JSON object a line; then the host's handlers of this logger are replaced.
        verbosity: 0 warnings and errors, 1 what the worker does, 2 and more everything.
    """
    logger = logging.getLogger(LOGGER)
    if logger.hasHandlers() and not as_json:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONFormatter() if as_json else TextFormatter())
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))
