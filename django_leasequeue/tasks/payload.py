"""The payload of a task's job and the task's return value, as JSON."""

from __future__ import annotations

from typing import Any

from ..engine import codec
from ..engine.payloads import result_limit
from ..exceptions import InvalidOption, PayloadTooLarge
from .api import normalize_json
from .arguments import decoded
from .exceptions import ResultNotSerializable

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
