"""Worker processes, claims that wait for their burst, and tasks that the clock enqueues."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from .base import ReadOnlyModel
from .fields import SameNumber
from .queue import Queue


class Worker(ReadOnlyModel):
    """A worker process. A row whose ``seen_at`` is old belongs to one that died; the reaper removes it."""

    instead = {
        "create": "manage.py runworker",
        "update": "the workers page of the admin",
        "delete": "the reaper, which removes those that died",
    }
    says = "{0.node}"

    node = models.TextField(unique=True)
    host = models.TextField()
    pid = models.IntegerField()
    project = models.CharField(max_length=256, default="", blank=True)
    queues = ArrayField(models.TextField(), default=list)
    concurrency = models.IntegerField()
    state = models.CharField(max_length=16, default="running")
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    completed = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    retried = models.BigIntegerField(default=0)
    lost = models.BigIntegerField(default=0)
    running = models.JSONField(default=list)
    info = models.JSONField(default=dict)
    stop_requested_at = models.DateTimeField(null=True, blank=True)

    #: Seconds since it was seen, and whether it counts as dead: of rows that ``reaper.status.seen`` returns.
    silent: float
    gone: bool

    class Meta:
        permissions = [("stop_worker", "Can ask workers to stop")]
        indexes = [models.Index(fields=["seen_at"], name="leasequeue_worker_seen")]


class ClaimWaiter(ReadOnlyModel):
    """One claimer of a coalescing window, in whatever server process it waits.

    The table is unlogged: its rows live for one window, and a crash only makes the claimers ask again.
    """

    says = "claim waiter {0.pk}"

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    node = models.TextField()
    size = models.IntegerField()
    lease_ms = models.BigIntegerField(null=True)
    connection = models.TextField(null=True)
    joined_at = models.DateTimeField()
    closes_at = models.DateTimeField()
    dealt_at = models.DateTimeField(null=True)
    #: The claim that it was dealt; null when nothing was left.
    claim = models.BigIntegerField(null=True)

    class Meta:
        indexes = [
            # The cohort of a queue, in order of arrival.
            models.Index(fields=["queue", "id"], name="leasequeue_waiter_open", condition=Q(dealt_at__isnull=True)),
        ]


class RecurringTask(models.Model):
    """A cron line. ``last_tick_at`` moves with the enqueue in one transaction, so each tick runs once."""

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
