"""The note of a job that has steps to undo (the step ``$undo``): its true deliveries, why they are undone, the end."""

from __future__ import annotations

from typing import Any

from .. import codec
from ..operation import Statements, operation

#: The note's name among the steps of its job, and what the names of undone steps begin with.
NOTE = "$undo"
#: Its ``why`` if the job was cancelled; else that is a failure.
CANCELLED = "cancelled"


@operation
def note_undo(
    seq: int,
    token: int,
    node: str,
    change: dict[str, Any],
    *,
    max_deliveries: int | None = None,
    repeats: int | None = None,
) -> Statements[bool]:
    """Note why the steps of a leased job are undone, or that they are; return whether the lease is held.

    ``max_deliveries``: the job has so many from then on. ``repeats``: the end of the job repeats the failure of that
    delivery, which is forgotten.
    """
    noted = {"change": codec.dumps(change), "most": max_deliveries, "repeats": repeats}
    return bool((yield "undo_note", {"seq": seq, "token": token, "node": node, **noted}))


@operation
def forget_undone(seq: int, token: int, node: str) -> Statements[bool]:
    """Forget the undone steps of a leased job, and what was kept after the first of them: they run again."""
    return bool((yield "undo_forget", {"seq": seq, "token": token, "node": node}))
