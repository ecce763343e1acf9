"""What of a payload an operator may see: nothing but its shape, or its values without secrets.

Without the permission ``view_payload`` only names and types are shown. With it the hook
``LEASEQUEUE["ADMIN"]["REDACT"]`` decides, a callable or its dotted path, ``redact(value, *, kind, queue, task)``: it
gets the JSON value, what it is (``data``, ``meta``, ``result``, ``progress``), the queue's name and the task's, and
returns what is shown. Without a hook the values of names that sound like secrets are hidden.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable
from typing import Any

from django.utils.module_loading import import_string

from ... import conf
from .. import codec

logger = logging.getLogger("django_leasequeue.admin")

#: Stands where a value is hidden.
HIDDEN = "[hidden]"
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|authorization|cookie|"
    r"session[_-]?id|signature|card[_-]?number|cvc|iban|ssn$",
    re.IGNORECASE,
)
#: How deep a value is looked into; what lies deeper is hidden.
_DEPTH = 60
#: How deep a value can be that hooks and pages get.
_DEEPEST = 100
#: Stand for what cannot be shown.
TOO_DEEP, NOT_READABLE = "[nested too deep to be shown]", "[cannot be read]"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def hide_secrets(value: Any, *, kind: str = "", queue: str = "", task: str | None = None, depth: int = _DEPTH) -> Any:
    """Return a JSON value with the values of secret-sounding names hidden: the hook that is used when none is set."""
    if isinstance(value, dict):
        if not depth:
            return HIDDEN
        return {
            name: HIDDEN if _SECRET.search(name) and inner is not None else hide_secrets(inner, depth=depth - 1)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [hide_secrets(inner, depth=depth - 1) for inner in value] if depth else HIDDEN
    return value


def shape(value: Any, depth: int = _DEPTH) -> Any:
    """Return a JSON value with every value replaced by the name of its type."""
    if isinstance(value, dict):
        return {name: shape(inner, depth - 1) for name, inner in value.items()} if depth else "[object]"
    if isinstance(value, list):
        return [shape(inner, depth - 1) for inner in value] if depth else "[array]"
    if value is None:
        return None
    if isinstance(value, bool):
        return "[boolean]"
    return "[number]" if isinstance(value, int | float) else "[text]"


def readable(text: str) -> Any:
    """Return what stored JSON says, in a form that every page and every strict JSON reader takes.

    A number that is no finite float, or has more digits than Python reads, is its text; a lone surrogate is a question
    mark; what is nested too deep is said in words.
    """
    try:
        value = codec.loads(text, parse_int=_integer, parse_float=_real)
    except ValueError:
        return NOT_READABLE
    if text.count("{") + text.count("[") > _DEEPEST:
        value = _cut(value, _DEEPEST)
    if _SURROGATE.search(text):
        value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    return value


def _integer(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:  # longer than sys.get_int_max_str_digits()
        return text


def _real(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def _cut(value: Any, depth: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if not depth:
        return TOO_DEEP
    if isinstance(value, dict):
        return {name: _cut(inner, depth - 1) for name, inner in value.items()}
    return [_cut(inner, depth - 1) for inner in value]


def hook() -> Callable[..., Any]:
    """Return the host's hook, or ours."""
    found = conf.settings.ADMIN.REDACT or hide_secrets
    hook: Callable[..., Any] = import_string(found) if isinstance(found, str) else found
    return hook


def redact(value: Any, *, kind: str = "data", queue: str = "", task: str | None = None, values: bool = True) -> Any:
    """Return what may be shown of a JSON value."""
    if value is None:
        return None
    if not values:
        return shape(value)
    try:
        return hook()(value, kind=kind, queue=queue, task=task)
    except Exception:  # (the host's code) an error of it must neither show a secret nor hide the job
        logger.exception("LEASEQUEUE['ADMIN']['REDACT'] failed: nothing of the payload is shown")
        return HIDDEN
