"""What a limit or a workflow holds, and why."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from ...enums import MemberState
from ..operation import Steps, operation


class MemberRow(NamedTuple):
    """A job under a limit or in a workflow; ``None`` for what it is not in."""

    state: int
    taken: bool
    pending: int
    label: str
    limit: str | None
    key: str | None
    concurrency: int | None
    rate: int | None
    per_ms: int | None
    workflow: UUID | None
    workflow_name: str | None

    @property
    def waits_for(self) -> str:
        """What keeps it from starting, for people to read; empty if nothing of this does."""
        if self.state == MemberState.CANCELLED:
            return "cancelled: a job before it in its workflow has failed or was cancelled"
        if self.pending:
            return f"{self.pending} jobs of its workflow" if self.pending > 1 else "a job of its workflow"
        if self.limit is None or self.taken:
            return ""
        parts = []
        if self.concurrency is not None:
            parts.append(f"{self.concurrency} at a time")
        if self.rate is not None and self.per_ms is not None:
            parts.append(f"{self.rate} in {self.per_ms / 1000:g} s")
        return f"its turn: key {self.key!r} of the limit {self.limit!r} ({', '.join(parts)})"


@operation
def member(seq: int) -> Steps[MemberRow | None]:
    """Return what holds or counts a job; ``None`` for a plain job.

    Args:
        seq: its number.
    """
    rows = yield "member_get", {"seq": seq}
    return MemberRow._make(rows[0]) if rows else None
