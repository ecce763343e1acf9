"""What an operation tells the outside: signals, sent by the executor when the operation is over."""

from __future__ import annotations

from typing import Any

from ..signals import ENGINE_SIGNALS
from .operation import Steps

#: A step whose name begins so is for the executor, not for the database.
PREFIX = "signal:"


def announce(signal: str, **info: Any) -> Steps[None]:
    """Steps that announce a signal; nothing at all when nobody listens."""
    if ENGINE_SIGNALS[signal].receivers:
        yield PREFIX + signal, info
