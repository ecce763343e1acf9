"""Log lines: one a message, without tokens; of a worker a sentence and its fields, as text or as JSON.

Filters keep each message to a line, so that no error's text forges an entry.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import process

if TYPE_CHECKING:
    from ..engine import LeasedJob

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
        try:
            message = record.getMessage()
        except BaseException as error:  # noqa: BLE001  (it is the host's)
            record.msg, record.args = f"{record.msg} {_not_shown('arguments', error)}", ()
            message = record.msg
        if (line := one_line(message)) != message:
            record.msg, record.args = line, ()
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            try:
                record.exc_text = indented(_PLAIN.formatException(record.exc_info))
            except BaseException as error:  # noqa: BLE001  (it is the host's)
                record.exc_info, record.exc_text = None, indented(_not_shown("traceback", error))
        return True


def _not_shown(what: str, error: BaseException) -> str:
    if not process.outlives(error):
        raise error
    return f"(its {what} cannot be shown: {type(error).__name__})"


_ONE_LINE = OneLine()


def keep_to_lines(*names: str) -> None:
    """Filter the records of these loggers. May be called again."""
    for name in names:
        logging.getLogger(name).addFilter(_ONE_LINE)


def contain(*names: str) -> None:
    """Let nothing out into threads of ours that filters, handlers and formatters raise. May be called again."""
    for name in names:
        logger = logging.getLogger(name)
        logger.handle = partial(_handle, partial(type(logger).handle, logger))  # type: ignore[method-assign]


def _handle(handle: Callable[[logging.LogRecord], None], record: logging.LogRecord) -> None:
    """Handle a record; in a thread of ours, write a line that is lost to the process's standard error."""
    try:
        handle(record)
    except BaseException as error:
        if not process.outlives(error, elsewhere=()):
            raise
        with suppress(BaseException):  # the host's names and descriptors
            lost = f"{record.levelname} {record.name}: {record.getMessage()} (logging raised {type(error).__name__})"
            # A task may have closed sys.stderr, not its descriptor.
            os.write(2, "\n".join([lost, *filter(None, [record.exc_text]), ""]).encode(errors="replace"))


@contextmanager
def contained(logger: logging.Logger, words: str, *args: object, **fields: Any) -> Iterator[None]:
    """Log what the host's code in the block raises: it ends neither this thread nor what called it."""
    try:
        yield
    except BaseException as error:
        if not process.outlives(error):
            raise
        logger.exception(words, *args, extra=fields)


def exc_info(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return ``exc_info`` of the host's error: logging asks an error itself whether it is true."""
    return type(error), error, error.__traceback__


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


_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

LOGGER = "django_leasequeue"
#: The logger of failed jobs, so that LOGGING can send them elsewhere.
JOBS = logging.getLogger("django_leasequeue.jobs")
#: Django's own line of each end of a task, on Django 6 and on its backport.
_TASK_LOGGERS = ("django.tasks", "django_tasks")
#: Loggers that are called in threads of ours: beside ours those of Django's signals, asyncio and psycopg.
CALLED = (*LOGGERS, *_TASK_LOGGERS, "django.dispatch", "asyncio", "psycopg")


def about(job: LeasedJob, **more: Any) -> dict[str, Any]:
    """Return the fields of a job, for ``extra``."""
    return {"seq": job.seq, "queue": job.queue, "job": job.name, "key": job.key, **more}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of ``extra`` that are not ``None``."""
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD and value is not None}


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class TextFormatter(logging.Formatter):
    """``time LEVEL part: sentence key=value ...``, and the traceback on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={_word(value)}" for key, value in fields_of(record).items())
        part = record.name.removeprefix(LOGGER + ".")
        line = f"{_time_of(record)} {record.levelname} {part}: {one_line(record.getMessage())}"
        if fields:
            line += " " + fields
        trace = indented(self.formatException(record.exc_info)) if record.exc_info else record.exc_text
        return f"{line}\n{trace}" if trace else line


class JSONFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key, value in fields_of(record).items():
            entry.setdefault(key, value)
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def _word(value: Any) -> str:
    text = str(value)
    plain = text.isprintable() and not any(char in text for char in ' "=')
    return text if text and plain else one_line(json.dumps(text, ensure_ascii=False))


def set_up_logging(*, as_json: bool, verbosity: int) -> None:
    """Send log lines to standard error; ``verbosity``: warnings (0), the worker's actions (1), or everything (2).

    As JSON: every line of the process, with those that the host's handlers would write to the terminal, warnings, and
    uncaught exceptions. Otherwise only our own lines, unless the host's settings configure them.
    """
    logger = logging.getLogger(LOGGER)
    if logger.hasHandlers() and not as_json:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONFormatter() if as_json else TextFormatter())
    logger.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))
    if as_json:
        _take_over(handler)
    else:
        logger.handlers[:] = [handler]
        logger.propagate = False


def quieten_tasks() -> None:
    """Lower Django's line of a task that failed in a worker from error to info. May be called again."""
    for name in _TASK_LOGGERS:
        logging.getLogger(name).addFilter(_quieten)


def _quieten(record: logging.LogRecord) -> bool:
    # The worker has logged it with the traceback. Tasks of other backends may run in this process as well.
    if process.is_own_thread() and record.levelno >= logging.ERROR and record.funcName == "log_task_finished":
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        record.exc_info = record.exc_text = None
    return True


def _take_over(handler: logging.Handler) -> None:
    """Replace all handlers that write to the terminal by one, which also gets warnings and uncaught exceptions."""
    logging.captureWarnings(True)
    root, terminal = logging.getLogger(), (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    for logger in [root, *logging.Logger.manager.loggerDict.values()]:
        if not isinstance(logger, logging.Logger):  # a name that no logger has, above one that has
            continue
        said = [each for each in logger.handlers if isinstance(each, logging.StreamHandler) and each.stream in terminal]
        kept = [each for each in logger.handlers if each not in said]
        # A logger that does not propagate to the root needs the handler itself.
        alone = not logger.propagate and len(kept) < len(logger.handlers)
        logger.handlers[:] = [*kept, handler] if alone or logger is root else kept
    sys.excepthook = _say_uncaught
    threading.excepthook = _say_uncaught_in_thread
    sys.unraisablehook = _say_ignored


def _say_uncaught(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None, *, thread: str | None = None
) -> None:
    if issubclass(kind, KeyboardInterrupt | SystemExit):
        return
    logging.getLogger("python").critical(
        "Uncaught exception", exc_info=(kind, error, traceback), extra={"in_thread": thread}
    )


def _say_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    name = None if args.thread is None else args.thread.name
    _say_uncaught(args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback, thread=name)


def _say_ignored(args: sys.UnraisableHookArgs) -> None:
    error = args.exc_value or args.exc_type()
    logging.getLogger("python").error(
        args.err_msg or "Exception ignored",
        exc_info=(args.exc_type, error, args.exc_traceback),
        extra={"object": repr(args.object)},
    )


class LogStream:
    """A text stream that turns output of Django's commands into log lines."""

    def __init__(self, level: int) -> None:
        self._level = level

    def write(self, text: str) -> int:
        for line in filter(None, map(str.strip, text.splitlines())):
            logging.getLogger(LOGGER).log(self._level, line)
        return len(text)

    def flush(self) -> None:
        """Do nothing: a line is written at once."""
