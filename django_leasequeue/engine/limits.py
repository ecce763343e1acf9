"""Bounds of the engine's calls, and the checks that every call makes before it touches the database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from .. import words
from ..conf.queue_options import OPTIONS
from ..exceptions import BatchTooLarge, InvalidOption

#: Jobs of one claim or settle call.
MAX_BATCH = 1_000
#: Bytes of a payload above which a job has the flag LARGE, as in ``sql/parts/is_large.sql``: claims count its bytes.
LARGE_BYTES = 16_384
MAX_NODE_BYTES = 128
MIN_LEASE_MS, MAX_LEASE_MS = OPTIONS["lease_ms"].low, OPTIONS["lease_ms"].high
MAX_DELAY_MS = 86_400_000
MAX_KEY_BYTES = words.JOB_TEXTS["key"]
#: Bytes of the key of a unique job.
MAX_UNIQUE_BYTES = 512
MAX_TAG_BYTES = words.JOB_TEXTS["tag"]
MAX_PROJECT_BYTES = 1_024
MAX_QUEUE_BYTES = 255
#: Bytes of the name of a NOTIFY channel (PostgreSQL cuts longer ones: no listener would hear).
MAX_CHANNEL_BYTES = words.JOB_TEXTS["reply_to"]
MAX_SEQ = 2**63 - 1
MAX_SPAN_MS = words.MAX_SPAN_MS
#: Seconds for which a worker's row says that it runs: it is written every five seconds, and a killed one writes none.
WORKER_LEASE = 30
MAX_TIMEOUT = 86_400.0
#: Steps of one job, characters of a step's name.
MAX_STEPS, MAX_STEP_NAME = 10_000, 200
#: Bytes of the name under which a step is kept: a repeated one has its number behind it.
MAX_KEPT_NAME_BYTES = 4 * MAX_STEP_NAME + len(f"#{MAX_STEPS}")


def check_text(value: Any, what: str, high: int, low: int = 1) -> str:
    """Return ``value``, ``low`` to ``high`` bytes of text that PostgreSQL can store."""
    if not isinstance(value, str):
        raise InvalidOption(f"{what} must be text; it is a {type(value).__name__}.")
    # Nearly every text is plain: its characters are its bytes, and nothing has to be encoded to be measured.
    if value.isascii() and low <= len(value) <= high and "\x00" not in value:
        return value
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        size = -1
    if not low <= size <= high or "\x00" in value:
        raise InvalidOption(f"{what} must be {low} to {high} bytes of text without NUL; it is {value[:80]!r}.")
    return value


def seconds_of(value: float | timedelta, what: str) -> float:
    """Return ``value``, a number of seconds or a timedelta, as seconds."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
        raise InvalidOption(f"{what} must be a number of seconds from 0, or a timedelta; it is {value!r}.")
    return seconds


def check_place(project: Any, *queues: Any) -> None:
    """Check the project and the names of the queues to look for there."""
    check_text(project, "the project", MAX_PROJECT_BYTES, 0)
    for queue in queues:
        check_text(queue, "the name of a queue", MAX_QUEUE_BYTES)


def check_node(node: Any) -> str:
    """Return ``node``, 1 to 128 bytes of text without NUL."""
    return check_text(node, "the node (the worker's name)", MAX_NODE_BYTES)


def check_list(values: Any, what: str) -> Sequence[Any]:
    """Return ``values`` if they are a list, tuple or the like, and neither text nor a single named tuple."""
    found: Sequence[Any] = values
    if type(values) in (list, tuple):  # nearly always, and the quickest way to know
        return found
    if not isinstance(values, Sequence) or isinstance(values, str | bytes) or hasattr(values, "_fields"):
        raise InvalidOption(f"{what} must be a list; it is a {type(values).__name__}.")
    return found


def check_integer(value: Any, what: str, low: int, high: int) -> int:
    """Return ``value``, an integer from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidOption(f"{what} must be an integer from {low} to {high}; it is {value!r:.80}.")
    return value


def seq_of(text: str) -> int | None:
    """Return the number of a job from text that a user typed, ``None`` if it is none."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_SEQ))):
        return None
    return number if (number := int(text)) <= MAX_SEQ else None


def check_seqs(seqs: Sequence[int], most: int = MAX_BATCH) -> list[int]:
    """Return ``seqs`` once each, in order."""
    if len(check_list(seqs, "the seqs")) > most:
        raise BatchTooLarge(f"one call takes at most {most} jobs; there are {len(seqs)}. Split them.")
    for seq in seqs:
        if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq <= MAX_SEQ:
            raise InvalidOption(f"a seq is the number of a job, 0 to {MAX_SEQ}; it is {seq!r:.80}.")
    return list(dict.fromkeys(seqs))


def check_token(token: Any) -> int | None:
    """Return the token of a claim, ``None`` for a call without one."""
    return None if token is None else check_integer(token, "the token of a claim", 0, MAX_SEQ)


def check_ids(queue_ids: Sequence[int]) -> Sequence[int]:
    """Return the ids of queues."""
    for queue_id in check_list(queue_ids, "the ids of queues"):
        check_integer(queue_id, "the id of a queue", 0, MAX_SEQ)
    return queue_ids


def check_count(size: Any, what: str, high: int, low: int = 0) -> int:
    """Return ``size`` cut to ``high``."""
    if isinstance(size, bool) or not isinstance(size, int) or size < low:
        raise InvalidOption(f"{what} must be an integer from {low}; it is {size!r:.80}.")
    return min(size, high)


def check_timeout(timeout: Any) -> float:
    """Return ``timeout``, a number of seconds that a caller may wait for a job."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= MAX_TIMEOUT:
        raise InvalidOption(f"timeout must be seconds, more than 0 and at most {MAX_TIMEOUT:g}; it is {timeout!r}.")
    return float(timeout)


class LongLease(int):
    """The length of a lease in ms that may be more than a day: for callers that bound it themselves."""


def clamp(value: int | None, what: str, low: int, high: int) -> int | None:
    """Return a length of time in ms within these bounds; ``None`` for what that means to the caller."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(f"{what} must be an integer of milliseconds; it is {value!r}.")
    return min(max(value, low), high)


def clamp_lease(lease_ms: int | None) -> int | None:
    """Return a lease length within 100..86,400,000 ms (a ``LongLease`` as it is), ``None`` for the queue's own."""
    if lease_ms is None or isinstance(lease_ms, LongLease):
        return lease_ms
    return clamp(lease_ms, "lease_ms", MIN_LEASE_MS, MAX_LEASE_MS)


def clamp_delay(delay_ms: int | None, longest: int = MAX_DELAY_MS) -> int | None:
    """Return a delay of a day or of ``longest`` at most, ``None`` for the queue's backoff."""
    return clamp(delay_ms, "delay_ms", 0, longest)
