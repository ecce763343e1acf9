"""TopicState: what is remembered of a topic beyond its live records. Timeline: what a failover cannot have lost."""

from __future__ import annotations

from django.db import models

from .queue import Queue


class TopicState(models.Model):
    """One row per topic, made with it.

    Written only when records are removed, never when they are added: a row that every enqueue updates would make all
    producers of a queue wait for each other.
    """

    queue = models.OneToOneField(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, primary_key=True, related_name="+"
    )
    #: The highest number that was ever removed; the topic's head is that or the highest live one.
    head_seq = models.BigIntegerField(default=0, db_default=0)
    last_write_at = models.DateTimeField(null=True)
    #: What a cap or a TTL took away, for readers that come too late.
    gap_from = models.BigIntegerField(null=True)
    gap_to = models.BigIntegerField(null=True)
    gap_count = models.BigIntegerField(default=0, db_default=0)
    gap_reason = models.CharField(max_length=8, null=True)
    #: At most this many live records and bytes, where a cap asks for it; null: count again.
    records = models.BigIntegerField(null=True)
    bytes = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return f"state of topic {self.queue_id}"


class Timeline(models.Model):
    """One row per timeline of the server, which a promoted standby changes, written by the reaper.

    A row that a standby has seen proves that everything up to ``sealed`` and below ``horizon`` reached it as well.
    """

    timeline = models.BigIntegerField(primary_key=True)
    #: The highest number drawn when it was noted; all of it has ended once transaction ``mark`` is the oldest.
    head = models.BigIntegerField()
    mark = models.BigIntegerField()
    #: Every transaction that drew a number up to this one has ended.
    sealed = models.BigIntegerField()
    #: Every transaction below this one has ended.
    horizon = models.BigIntegerField()
    noted_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"timeline {self.timeline}"
