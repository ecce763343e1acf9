"""Bounds of the engine's calls, and the checks that every call makes before it touches the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..exceptions import BatchTooLarge, InvalidOption

#: Jobs of one claim or settle call (seed 000: MAX_CLAIM).
MAX_BATCH = 1_000
#: Bytes of a node's name.
MAX_NODE_BYTES = 128
MAX_LEASE_MS = 86_400_000
MIN_LEASE_MS = 100
MAX_DELAY_MS = 86_400_000
MAX_KEY_BYTES = 1_024
MAX_TAG_BYTES = 256
MAX_SEQ = 2**63 - 1


def check_node(node: Any) -> str:
    """Return ``node``, 1 to 128 bytes of text without NUL.

    Raises:
        InvalidOption: it is something else.
    """
    if not isinstance(node, str) or not node or "\x00" in node or len(node.encode(errors="replace")) > MAX_NODE_BYTES:
        raise InvalidOption(f"the node must be the worker's name, 1 to {MAX_NODE_BYTES} bytes of text; it is {node!r}.")
    return node


def check_seqs(seqs: Sequence[int]) -> list[int]:
    """Return ``seqs`` once each, in order.

    Raises:
        BatchTooLarge: there are more than 1,000.
        InvalidOption: one is not the number of a job.
    """
    if len(seqs) > MAX_BATCH:
        raise BatchTooLarge(f"one call settles at most {MAX_BATCH} jobs; there are {len(seqs)}. Split them.")
    for seq in seqs:
        if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq <= MAX_SEQ:
            raise InvalidOption(f"a seq is the number of a job, 0 to {MAX_SEQ}; it is {seq!r}.")
    return list(dict.fromkeys(seqs))


def check_count(size: Any, what: str, high: int, low: int = 0) -> int:
    """Return ``size`` cut to ``high``.

    Raises:
        InvalidOption: it is not an integer, or below ``low``.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < low:
        raise InvalidOption(f"{what} must be an integer from {low}; it is {size!r}.")
    return min(size, high)


def clamp_lease(lease_ms: int | None) -> int | None:
    """Return a lease length within 100..86,400,000 ms (seed 000), ``None`` for the queue's own."""
    if lease_ms is None:
        return None
    if isinstance(lease_ms, bool) or not isinstance(lease_ms, int):
        raise InvalidOption(f"lease_ms must be an integer of milliseconds; it is {lease_ms!r}.")
    return min(max(lease_ms, MIN_LEASE_MS), MAX_LEASE_MS)


def clamp_delay(delay_ms: int | None) -> int | None:
    """Return a delay within 0..86,400,000 ms (seed 000), ``None`` for the queue's backoff."""
    if delay_ms is None:
        return None
    if isinstance(delay_ms, bool) or not isinstance(delay_ms, int):
        raise InvalidOption(f"delay_ms must be an integer of milliseconds; it is {delay_ms!r}.")
    return min(max(delay_ms, 0), MAX_DELAY_MS)
