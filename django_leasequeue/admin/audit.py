"""Writing the audit: who did what, to what, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.http import HttpRequest

from ..engine import clock
from ..models import BulkOperation, OperatorAction

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


def record(request: HttpRequest, action: str, *, obj: models.Model | None = None, **facts: Any) -> OperatorAction:
    """Write what the user of a request did: a line of the audit, and one of Django's own log.

    Args:
        request: of a page of the admin.
        action: a word for what was done.
        obj: what it was done to, for Django's log; the line of the audit stands for it where there is none.
        **facts: the other arguments of ``write``.
    """
    line = write(action, user_id=str(request.user.pk), username=request.user.get_username(), **facts)
    assert request.user.pk is not None, "pages of the admin let nobody in who is not signed in"
    about = obj if obj is not None else line
    words = [action]
    if line.seqs:
        words.append(f"jobs {', '.join(map(str, line.seqs[:10]))}{', …' if len(line.seqs) > 10 else ''}")
    elif line.queue:
        words.append(f"queue {line.queue}")
    words += [f"{name} {value}" for name, value in line.counts.items()]
    if line.reason:
        words.append(f"reason: {line.reason[:200]}")
    LogEntry.objects.create(
        user_id=request.user.pk,
        content_type_id=ContentType.objects.get_for_model(about, for_concrete_model=False).pk,
        object_id=str(about.pk),
        object_repr=str(about)[:200],
        action_flag=CHANGE,
        change_message="; ".join(words),
    )
    return line
