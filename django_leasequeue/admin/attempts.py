"""The attempts at one job, put together from its lease events and the errors that it keeps."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ..enums import EventKind
from .reading import LoggedEvent

#: Lines of the difference of two failures.
_DIFF_LINES = 120
_ENDS = {EventKind.RELEASED, EventKind.ACKED, EventKind.FAILED, EventKind.EXPIRED}


@dataclass(slots=True)
class AttemptLine:
    """One delivery: who had it, from when to when, how it ended, and what differs from the failed one before."""

    number: int
    delivery: int | None = None
    claim: int | None = None
    node: str | None = None
    host: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    deadline: datetime | None = None
    extended: int = 0
    outcome: str = "running"
    retry_at: str | None = None
    error: dict[str, Any] | None = None
    failing: bool = False
    dead: bool = False
    waited: timedelta | None = None
    ran: timedelta | None = None
    changes: list[str] = field(default_factory=list)
    difference: list[tuple[str, str]] = field(default_factory=list)

    @property
    def held(self) -> timedelta | None:
        """From the claim to the end: the lease's time. What the task itself took is ``ran``."""
        return self.ended_at - self.started_at if self.started_at and self.ended_at else None


def attempts_of(
    events: Iterable[LoggedEvent], errors: Sequence[dict[str, Any]], hosts: dict[str, str]
) -> list[AttemptLine]:
    """Return the attempts, oldest first.

    Args:
        events: of the job, oldest first; the oldest may be gone.
        errors: the failures that the job keeps, oldest first.
        hosts: names of hosts by node, as far as they are known.
    """
    found = _from_events(events)
    _join_errors(found, errors)
    for number, attempt in enumerate(found, 1):
        attempt.number = number
        attempt.host = hosts.get(attempt.node or "")
    _compare([attempt for attempt in found if attempt.error])
    return found


def _from_events(events: Iterable[LoggedEvent]) -> list[AttemptLine]:
    found: list[AttemptLine] = []
    for event in events:
        if event.kind_number == EventKind.CLAIMED:
            found.append(
                AttemptLine(
                    0,
                    event.deliveries,
                    event.claim,
                    event.node,
                    started_at=event.occurred_at,
                    deadline=event.deadline,
                    waited=_span(event.waited),
                )
            )
            continue
        if event.kind_number == EventKind.DEAD_LETTERED and found:
            found[-1].dead = True
        if event.kind_number not in {*_ENDS, EventKind.EXTENDED}:
            continue
        if not found or (event.claim is not None and found[-1].claim != event.claim):
            # Its claim is older than the log.
            found.append(AttemptLine(0, event.deliveries, event.claim, event.node))
        _note(found[-1], event)
    return found


def _note(attempt: AttemptLine, event: LoggedEvent) -> None:
    if event.kind_number == EventKind.EXTENDED:
        attempt.extended += 1
        attempt.deadline = event.deadline
        return
    detail = event.detail
    attempt.ended_at = event.occurred_at
    attempt.outcome = event.what
    if detail.get("unstarted"):
        attempt.outcome = "given back unstarted"
    elif detail.get("suspended"):
        attempt.outcome = "suspended"
    attempt.ran = _span(event.ran)
    attempt.retry_at = detail.get("available_at")
    attempt.failing = event.kind_number in {EventKind.EXPIRED, EventKind.FAILED} or bool(detail.get("error_type"))


def _span(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=ms)


def _join_errors(found: list[AttemptLine], errors: Sequence[dict[str, Any]]) -> None:
    """Give the errors to the attempts that failed, from the newest back: both lists may lack their oldest."""
    failing = [attempt for attempt in found if attempt.failing]
    for attempt, error in zip(reversed(failing), reversed(errors), strict=False):
        attempt.error = error
    for error in reversed(errors[: max(len(errors) - len(failing), 0)]):
        found.insert(0, AttemptLine(0, node=error.get("node"), outcome="failed", error=error, failing=True))


def _compare(failed: Sequence[AttemptLine]) -> None:
    for before, after in itertools.pairwise(failed):
        old, new = before.error or {}, after.error or {}
        after.changes = [
            f"another {what}: {_short(old.get(name))} → {_short(new.get(name))}"
            for name, what in (("type", "error"), ("message", "message"), ("node", "worker"))
            if old.get(name) != new.get(name)
        ]
        lines = [_lines(each) for each in (old, new)]
        if lines[0] != lines[1]:
            after.difference = _difference(*lines)
            if old.get("traceback") != new.get("traceback"):
                after.changes.append("another traceback")
        if not after.changes:
            after.changes = ["nothing: the same error, by the same worker"]


def _short(value: Any) -> str:
    text = str(value or "none")
    return text if len(text) <= 80 else f"{text[:77]}..."


def _lines(error: dict[str, Any]) -> list[str]:
    text = f"{error.get('type', '')}: {error.get('message', '')}\n{error.get('traceback') or ''}"
    return text.splitlines()[:1_000]


def _difference(old: list[str], new: list[str]) -> list[tuple[str, str]]:
    """Return (added, removed or nothing; line) of what differs, with a little of what is around."""
    kinds = {"+": "lq-added", "-": "lq-removed"}
    lines = list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]
    return [(kinds.get(line[:1], ""), line) for line in lines[:_DIFF_LINES]]
