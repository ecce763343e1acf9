"""RecurringTask: a task that is enqueued by the clock."""

from __future__ import annotations

from django.db import models

from .relations import SameNumber


class RecurringTask(models.Model):
    """A cron line. ``last_tick_at`` moves with the enqueue in one transaction, so a tick runs once whoever sees it."""

    name = models.CharField(max_length=128, unique=True)
    schedule = models.CharField(max_length=128)
    timezone = models.CharField(max_length=64, default="UTC")
    task = models.TextField()
    args = models.JSONField(default=list, blank=True)
    kwargs = models.JSONField(default=dict, blank=True)
    backend = models.CharField(max_length=64, default="default")
    queue_name = models.CharField(max_length=255, blank=True, default="")
    priority = models.SmallIntegerField(null=True, blank=True)
    enabled = models.BooleanField(default=True)
    from_settings = models.BooleanField(default=False, editable=False)
    last_tick_at = models.DateTimeField(null=True, blank=True)
    next_tick_at = models.DateTimeField(null=True, blank=True)
    #: The job of the last tick; ``None`` where the task's backend is not ours.
    last_seq = models.BigIntegerField(null=True, editable=False)
    last_job = SameNumber("leasequeue.Job", here="last_seq")
    created_at = models.DateTimeField(auto_now_add=True)

    #: Seconds that it is overdue: of rows that ``reaper.status.recurring`` returns.
    late: float | None

    class Meta:
        indexes = [models.Index(fields=["next_tick_at"], name="leasequeue_recurring_next")]

    def __str__(self) -> str:
        return self.name
