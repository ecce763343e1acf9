"""Workflow: jobs that start after one another."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from ..enums import WorkflowShape, WorkflowState
from .read_only import ReadOnlyManager, ReadOnlyModel


class Workflow(ReadOnlyModel):
    """A graph of jobs. Its row is the lock under which its members change; only workers and the reaper take it."""

    instead: ClassVar[dict[str, str]] = {
        "create": "chain(...).enqueue()",
        "update": "the calls of WorkflowResult",
        "delete": "WorkflowResult.cancel()",
    }

    uid = models.UUIDField(unique=True)
    project = models.CharField(max_length=256, default="", blank=True)
    name = models.CharField(max_length=255, default="", blank=True)
    state = models.SmallIntegerField(choices=WorkflowState.choices, default=WorkflowState.RUNNING)
    #: The form of its value: what ``wait()`` of its result returns.
    shape = models.SmallIntegerField(
        choices=WorkflowShape.choices, default=WorkflowShape.MAPPING, db_default=WorkflowShape.MAPPING
    )
    total = models.IntegerField()
    #: Parents of all its nodes together.
    edges = models.IntegerField(default=0, db_default=0)
    completed = models.IntegerField(default=0)
    failed = models.IntegerField(default=0)
    cancelled = models.IntegerField(default=0)
    #: The job that starts when one has failed.
    on_failure = models.BigIntegerField(null=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)

    objects = ReadOnlyManager()

    class Meta:
        indexes = [
            # Retention: the ended ones, oldest first.
            models.Index(
                fields=["expires_at"], name="leasequeue_workflow_expires", condition=Q(expires_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return self.name or str(self.uid)
