"""The parts of a task's job: its arguments, its return value, and the host's context of its call."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

from django.utils.module_loading import import_string

from .. import conf
from ..engine import LeasedJob, codec
from ..engine.metadata import CONTEXT, MAX_CONTEXT_BYTES, noted
from ..engine.payloads import result_limit
from ..exceptions import InvalidOption, PayloadTooLarge
from .api import Task, normalize_json
from .arguments import decoded
from .exceptions import ContextNotRestored, ResultNotSerializable

#: Types of return values that are JSON without being normalised.
_ATOMS = {str, int, float, bool}


def arguments_of(text: str | None) -> tuple[Any, Any, Any]:
    """Return positional and keyword arguments of a job's payload, and what it takes from the jobs before it."""
    if text is None:
        return (), {}, None
    data = codec.loads(text)
    if isinstance(data, dict):
        found = data.pop("args", ()), data.pop("kwargs", {}), data.pop("inputs", None)
        if not data:
            if '"$' in text:  # as the codecs write
                args, kwargs = decoded(*found[:2])
                return args, kwargs, found[2]
            return found
    raise InvalidOption(
        f'The payload of a task is {{"args": [...], "kwargs": {{...}}}}, each optional; it is {text[:200]}.'
    )


def result_json(path: str, value: Any) -> str:
    """Return a task's return value as JSON text."""
    try:
        text = codec.dumps(value if type(value) in _ATOMS else normalize_json(value), "it")
    except (TypeError, ValueError, RecursionError) as error:
        wrong = codec.find_unwritable(value, normal=True)
        raise ResultNotSerializable(
            f"{path} returned an object of type {type(value).__name__} that cannot be kept as its result:"
            f" {error if wrong is None else f'there is {wrong}'}. Return JSON, or let it ignore its result."
        ) from error
    limit = result_limit()
    if len(text) * 4 > limit and len(text.encode()) > limit:
        raise PayloadTooLarge(
            f"{path} returned more than {limit} bytes. Keep it elsewhere and return a reference, or raise"
            " LEASEQUEUE['MAX_RESULT_BYTES'] (with LEASEQUEUE['LARGE']: its MAX_BYTES)."
        )
    return text


_NOTHING = nullcontext()


def capture(path: str, task: Task[..., Any]) -> dict[str, Any] | None:
    """Return the context that the function at a path gives calls of a task, ``None`` if it gives none."""
    context = import_string(path)(task)
    if context is None:
        return None
    what = f"the context that {path} returns"
    if not isinstance(context, dict) or not all(isinstance(name, str) for name in context):
        raise InvalidOption(f"{what} must be None or a dict with texts as names; it is {context!r:.200}.")
    text = codec.dumps(context, what)
    size = len(text.encode())
    if size > MAX_CONTEXT_BYTES:
        raise InvalidOption(f"{what} must have at most {MAX_CONTEXT_BYTES:,} bytes as JSON; it has {size:,}.")
    # A copy: the jobs may be stored when the host's transaction commits.
    return dict(codec.loads(text))


def restored(job: LeasedJob) -> AbstractContextManager[None]:
    """Return the context manager for the run of a job: the host's restored context, or none."""
    context = noted(job.meta_json, CONTEXT)
    return _NOTHING if context is None else _Restored(context)


class _Restored:
    """The host's context manager around a run. It never swallows an error of the run."""

    __slots__ = ("_context", "_manager", "_path")

    def __init__(self, context: dict[str, Any]) -> None:
        self._context = context
        self._path = conf.settings.CONTEXT.RESTORE

    def __enter__(self) -> None:
        if self._path is None:
            raise ContextNotRestored(
                "The job carries a context, and this process does not know how to restore it: set"
                " LEASEQUEUE['CONTEXT']['RESTORE'] ('contextlib.nullcontext' drops contexts)."
            )
        try:
            self._manager = import_string(self._path)(self._context)
            if not isinstance(self._manager, AbstractContextManager):
                raise TypeError(f"it must return a context manager; it returned {self._manager!r:.200}")
            self._manager.__enter__()
        except Exception as error:
            raise ContextNotRestored(f"{self._path} failed before the task ran: {_text(error)}") from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._manager.__exit__(kind, error, at)
        except Exception as raised:
            if raised is not error:
                raise ContextNotRestored(f"{self._path} failed after the task ran: {_text(raised)}") from raised


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
