"""Writing the audit: who did what, to what, and why."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .. import conf
from ..models import BulkOperation, OperatorAction
from . import clock

#: Job numbers that one line keeps.
MAX_SEQS = 100


class Actor(NamedTuple):
    """Who does something, as a line of the audit says it; by default the host's own code."""

    source: str = "code"
    user_id: str = ""
    username: str = ""


CODE = Actor()


def shell() -> Actor:
    """Return the login name of the user who runs this command, or the user's number."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # an account without an entry: containers have those
        name = str(os.getuid())
    return Actor("command", username=name)


def write(
    action: str,
    by: Actor,
    *,
    project: str = "",
    queue: str = "",
    seqs: Sequence[int] = (),
    counts: Mapping[str, Any] | None = None,
    filters: str = "",
    reason: str = "",
    detail: Mapping[str, Any] | None = None,
    operation: BulkOperation | int | None = None,
    using: str | None = None,
) -> OperatorAction:
    """Write one line of the audit, in the transaction of the action."""
    return OperatorAction.objects.using(using or conf.settings.DATABASE).create(
        at=clock.now(),
        user_id=by.user_id[:64],
        username=by.username[:255],
        source=by.source,
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
