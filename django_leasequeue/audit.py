"""Writing the audit: who did what, to what, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .engine import clock
from .models import BulkOperation, OperatorAction

#: Job numbers that one line keeps.
MAX_SEQS = 100


def write(
    action: str,
    *,
    user_id: str = "",
    username: str = "",
    source: str = "admin",
    project: str = "",
    queue: str = "",
    seqs: Sequence[int] = (),
    counts: Mapping[str, Any] | None = None,
    filters: str = "",
    reason: str = "",
    detail: Mapping[str, Any] | None = None,
    operation: BulkOperation | int | None = None,
) -> OperatorAction:
    """Write one line of the audit, of any door.

    Args:
        action: a word for what was done, such as ``retry`` or ``pause``.
        user_id: the person's primary key as text.
        username: their name.
        source: ``admin`` or ``command``.
        project: the tenant; empty for none or all.
        queue: name of the queue; empty for none or all.
        seqs: numbers of the jobs; the first hundred are kept.
        counts: what came of it, in numbers.
        filters: the filter as a query string.
        reason: why.
        detail: whatever else a reader wants to know; never a payload with secrets.
        operation: the bulk operation that it belongs to.
    """
    return OperatorAction.objects.create(
        at=clock.now(),
        user_id=user_id[:64],
        username=username[:255],
        source=source,
        action=action[:32],
        project=project or "",
        queue=queue or "",
        seqs=list(seqs)[:MAX_SEQS],
        counts=dict(counts or {}),
        filters=filters,
        reason=reason,
        detail=dict(detail or {}),
        operation_id=operation.pk if isinstance(operation, BulkOperation) else operation,
    )
