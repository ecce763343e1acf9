"""QueueStat: figures of a queue, sampled by the reaper."""

from __future__ import annotations

from django.db import models

from .queue import Queue


class QueueStat(models.Model):
    """One sample of a queue. The newest is what capped counts fall back to; older ones draw the charts."""

    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="samples"
    )
    sampled_at = models.DateTimeField()
    ready = models.BigIntegerField()
    delayed = models.BigIntegerField()
    leased = models.BigIntegerField()
    dead = models.BigIntegerField()
    records = models.BigIntegerField(default=0)
    oldest_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["queue", "sampled_at"], name="leasequeue_stat_sample"),
        ]
        indexes = [
            # Retention of samples.
            models.Index(fields=["sampled_at"], name="leasequeue_stat_age"),
        ]

    def __str__(self) -> str:
        return f"sample of queue {self.queue_id} at {self.sampled_at:%Y-%m-%d %H:%M:%S}"
