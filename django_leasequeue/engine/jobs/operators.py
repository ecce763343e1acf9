"""Pauses and resumes of a task by an operator, each in one transaction with its line of the audit."""

from __future__ import annotations

from typing import Literal

from django.db import transaction

from .. import audit
from ..django_executor import run
from .pausing import pause_task, resume_task


def change_task(action: Literal["pause", "resume"], name: str, project: str, by: audit.Actor, using: str) -> bool:
    """Pause or resume a task in one database; return False if it is so already."""
    with transaction.atomic(using=using):
        pauses = action == "pause"
        steps = pause_task(name, project=project, by=by.username) if pauses else resume_task(name, project=project)
        if done := run(steps, using):
            audit.write(f"{action}_task", by, project=project, detail={"name": name}, using=using)
    return done
