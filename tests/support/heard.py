"""What the receivers of Django signals are told."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from django.dispatch import Signal


@contextmanager
def connected(signal: Signal, receiver: Callable[..., Any], **options: Any) -> Iterator[None]:
    """Let a receiver hear of a signal while the block runs."""
    signal.connect(receiver, weak=False, **options)
    try:
        yield
    finally:
        signal.disconnect(receiver, **options)


@contextmanager
def hearing(signals: Mapping[str, Signal]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What these signals tell while the block runs: each with its name, in order."""
    told: list[tuple[str, dict[str, Any]]] = []

    def receiver(name: str) -> Callable[..., None]:
        return lambda signal, sender, **info: told.append((name, info))

    with ExitStack() as stack:
        for name, signal in signals.items():
            stack.enter_context(connected(signal, receiver(name)))
        yield told
