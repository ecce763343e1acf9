"""Limit and LimitKey: how many jobs of a key may run at once, and how many may start in a time."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q


class Limit(models.Model):
    """A limit as the code names it. Each key that jobs give it has its own slots and its own rate."""

    project = models.CharField(max_length=256, default="", blank=True)
    name = models.CharField(max_length=255)
    #: Jobs of a key that are ready or leased at once.
    concurrency = models.IntegerField(null=True, blank=True)
    #: Jobs of a key that may start in ``per_ms`` milliseconds, and how many more at once.
    rate = models.IntegerField(null=True, blank=True)
    per_ms = models.BigIntegerField(null=True, blank=True)
    burst = models.IntegerField(default=0)
    #: Jobs are admitted behind those of other keys: these take turns.
    fair = models.BooleanField(default=False)
    #: An operator has set it: the code's values wait until that is taken back.
    pinned = models.BooleanField(default=False)
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="leasequeue_limit_name"),
            models.CheckConstraint(
                condition=(Q(concurrency__isnull=True) | Q(concurrency__range=(1, 10_000)))
                & (
                    Q(rate__isnull=True, per_ms__isnull=True)
                    | Q(rate__range=(1, 1_000_000), per_ms__range=(100, 86_400_000))
                )
                & Q(burst__range=(0, 1_000_000)),
                name="leasequeue_limit_values",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class LimitKey(models.Model):
    """A key of a limit. Its row is the lock under which its jobs are admitted; only workers and the reaper take it."""

    limit = models.ForeignKey(Limit, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    key = models.TextField(db_collation="C")
    #: Time at which every start that was admitted is paid for by the rate.
    paid_until = models.DateTimeField(null=True)
    #: The starts of the last ``per_ms``: times (microseconds since 1970, rounded up), oldest first; how many at each.
    started = ArrayField(models.BigIntegerField(), null=True)
    counts = ArrayField(models.IntegerField(), null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["limit", "key"], name="leasequeue_limitkey_key")]

    def __str__(self) -> str:
        return self.key
