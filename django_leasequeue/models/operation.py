"""BulkOperation: what an operator wants done with many dead letters, carried out by the reaper in batches."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q


class OperationKind(models.TextChoices):
    """What is done with each dead letter."""

    RETRY = "retry", "retry"
    REDRIVE = "redrive", "redrive to another queue"
    DISCARD = "discard", "discard"


class OperationState(models.TextChoices):
    """How far an operation is; the first three are active."""

    PENDING = "pending", "waiting for the reaper"
    RUNNING = "running", "running"
    PAUSED = "paused", "paused"
    DONE = "done", "done"
    CANCELLED = "cancelled", "cancelled"
    FAILED = "failed", "failed"


#: States in which an operation still may do something.
ACTIVE = (OperationState.PENDING, OperationState.RUNNING, OperationState.PAUSED)


class BulkOperation(models.Model):
    """One operation over the dead letters of a selection, or of a filter as it stood at ``frozen_at``.

    Progress is written in the transaction of each batch, so it goes on after any crash exactly where it was.
    """

    kind = models.CharField(max_length=8, choices=OperationKind.choices)
    state = models.CharField(max_length=9, choices=OperationState.choices, default=OperationState.PENDING)
    #: Tenant and queue that it is about; null: all of them.
    project = models.CharField(max_length=256, null=True, blank=True)
    queue = models.CharField(max_length=255, null=True, blank=True)
    #: The filter as a query string; and the numbers of a selection, in place of it.
    filters = models.TextField(default="", blank=True)
    seqs = ArrayField(models.BigIntegerField(), null=True, blank=True)
    #: Later dead letters are not touched.
    frozen_at = models.DateTimeField()
    target = models.CharField(max_length=255, null=True, blank=True)
    rate = models.FloatField(null=True, blank=True, help_text="jobs a second; empty: as fast as it goes")
    jitter_ms = models.IntegerField(default=0)
    reason = models.TextField(default="", blank=True)
    #: Of a retry or redrive: the step that runs again with those after it.
    from_step = models.TextField(null=True, blank=True)
    user_id = models.CharField(max_length=64, default="", blank=True)
    username = models.CharField(max_length=255, default="", blank=True)
    #: What the confirmation page counted; capped: there may be more.
    expected = models.BigIntegerField(null=True)
    expected_capped = models.BooleanField(default=False)
    #: Dead letters that were looked at, that were changed, that were left alone, and why.
    looked_at = models.BigIntegerField(default=0)
    done = models.BigIntegerField(default=0)
    conflicts = models.BigIntegerField(default=0)
    conflict_counts = models.JSONField(default=dict)
    #: The first conflicts: [[seq, why], ...].
    conflict_sample = models.JSONField(default=list)
    #: Where the next batch begins, and when the pace allows it.
    cursor = models.JSONField(null=True)
    paced_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    changed_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    error = models.TextField(default="", blank=True)

    class Meta:
        default_permissions = ("view",)
        indexes = [
            # What the reaper looks for, again and again.
            models.Index(fields=["id"], name="leasequeue_operation_active", condition=Q(state__in=ACTIVE)),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "queue", "kind"],
                name="leasequeue_operation_one_active",
                condition=Q(state__in=ACTIVE),
                nulls_distinct=False,
            ),
            models.CheckConstraint(condition=Q(rate__isnull=True) | Q(rate__gt=0), name="leasequeue_operation_rate"),
            models.CheckConstraint(condition=Q(jitter_ms__range=(0, 86_400_000)), name="leasequeue_operation_jitter"),
            models.CheckConstraint(
                condition=~Q(kind=OperationKind.REDRIVE) | Q(target__isnull=False),
                name="leasequeue_operation_target",
            ),
            models.CheckConstraint(
                condition=~Q(kind=OperationKind.DISCARD) | ~Q(reason=""), name="leasequeue_operation_reason"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of dead letters, number {self.pk}"

    @property
    def is_active(self) -> bool:
        """Whether it still may do something."""
        return self.state in ACTIVE
