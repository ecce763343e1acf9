"""Worker: presence and figures of a running worker process."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models

from .read_only import ReadOnlyManager, ReadOnlyModel


class Worker(ReadOnlyModel):
    """A worker process. A row whose ``seen_at`` is old belongs to one that died; the reaper removes it."""

    instead: ClassVar[dict[str, str]] = {
        "create": "manage.py runworker",
        "update": "the workers page of the admin",
        "delete": "the reaper, which removes those that died",
    }

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

    objects = ReadOnlyManager()

    class Meta:
        permissions = [("stop_worker", "Can ask workers to stop")]
        indexes = [models.Index(fields=["seen_at"], name="leasequeue_worker_seen")]

    def __str__(self) -> str:
        return self.node
