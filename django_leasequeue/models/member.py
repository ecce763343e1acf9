"""Member: a job that a limit or a workflow holds, and FlowTurn: the list of those to look at."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from ..enums import MemberState, TurnKind
from .queue import Queue


class Member(models.Model):
    """A job under a limit or in a workflow.

    While it may not start it stands in Delayed at a time that never comes. Its row changes only under the lock of its
    key or of its workflow.
    """

    seq = models.BigIntegerField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    rank = models.SmallIntegerField(default=0)
    #: The LimitKey that it counts for.
    key = models.BigIntegerField(null=True)
    #: Whether it has a slot of its key: it is ready or leased.
    taken = models.BooleanField(default=False)
    #: Whether it waits for its key: for a slot, or for its turn at the rate.
    waits = models.BooleanField(default=False)
    workflow = models.BigIntegerField(null=True)
    state = models.SmallIntegerField(choices=MemberState.choices, default=MemberState.OPEN)
    #: Parents that have not completed.
    pending = models.IntegerField(default=0)
    #: Whether it starts however its parents ended.
    tolerant = models.BooleanField(default=False)
    #: Its place among the nodes of its workflow.
    place = models.IntegerField(default=0)
    label = models.TextField(default="")
    parents = ArrayField(models.BigIntegerField(), null=True)
    children = ArrayField(models.BigIntegerField(), null=True)

    class Meta:
        indexes = [
            # The next jobs of a key, in the order of their ranks and numbers.
            models.Index(fields=["key", "rank", "seq"], name="leasequeue_member_waits", condition=Q(waits=True)),
            # The slots of a key.
            models.Index(fields=["key"], name="leasequeue_member_taken", condition=Q(taken=True)),
            # A workflow's jobs.
            models.Index(
                fields=["workflow", "seq"], name="leasequeue_member_workflow", condition=Q(workflow__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"member {self.seq}"


class FlowTurn(models.Model):
    """Something that may set other jobs free, written by the transaction in which it happened, read by claimers."""

    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    #: Not before this time. Only turns for a rate have one, and are taken by who starts jobs; the others have 1970.
    at = models.DateTimeField()
    kind = models.SmallIntegerField(choices=TurnKind.choices)
    #: Of ``ADMIT`` the key, of ``EXTEND`` the workflow.
    key = models.BigIntegerField(null=True)
    seqs = ArrayField(models.BigIntegerField(), null=True)
    detail = models.JSONField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["queue", "at", "id"], name="leasequeue_flowturn_due"),
            # What was added to a workflow and is not counted in its row yet.
            models.Index(fields=["key"], name="leasequeue_flowturn_extend", condition=Q(kind=TurnKind.EXTEND)),
            # The turns of a key.
            models.Index(fields=["key"], name="leasequeue_flowturn_key", condition=Q(kind=TurnKind.ADMIT)),
        ]

    def __str__(self) -> str:
        return f"turn {self.pk}"
