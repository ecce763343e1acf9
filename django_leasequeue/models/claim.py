"""Claim: one row per claim call; what is leased."""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models

from .guard import LocalTrigger
from .queue import Queue
from .read_only import ReadOnlyManager, ReadOnlyModel
from .relations import SameNumber

#: What jobs held that a claim does not hold any more is handed over in the transaction that took them out, and a
#: claimer is woken.
_NOTE_LEFT = """
    PERFORM leasequeue_left(OLD.queue_id, OLD.flags, ARRAY(SELECT u.seq FROM unnest(OLD.seqs) AS u(seq)
        WHERE TG_OP = 'DELETE' OR NOT u.seq = ANY (NEW.seqs)));
    RETURN NULL;
"""


class Claim(ReadOnlyModel):
    """The jobs of one claim call that are not settled yet: a job is leased if and only if its number is in ``seqs``.

    ``token`` fences late workers: no two claims have the same, also across a crash of the server. Extending some of a
    claim's jobs to another deadline splits the row: the parts have the same token.
    """

    instead: ClassVar[dict[str, str]] = {
        "create": "Queue(name).claim()",
        "update": "Queue(name).extend(job)",
        "delete": "Job.objects.leased().release()",
    }

    pk = models.CompositePrimaryKey("token", "part")
    token = models.BigIntegerField()
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    deadline = models.DateTimeField()
    created_at = models.DateTimeField()
    ttl_ms = models.BigIntegerField()
    grace_ms = models.BigIntegerField(default=0)
    part = models.SmallIntegerField(default=0)
    #: The flags of its jobs, together, and ``JobFlag.MIXED`` where they do not all have ``name``.
    flags = models.SmallIntegerField(default=0)
    node = models.TextField()
    name = models.TextField(null=True)
    connection = models.TextField(null=True)
    seqs = ArrayField(models.BigIntegerField())
    #: Times claimed, in the order of ``seqs``; null: once each.
    deliveries = ArrayField(models.IntegerField(), null=True)

    worker = SameNumber("leasequeue.Worker", here="node", there="node", related_name="leases")

    objects = ReadOnlyManager()

    class Meta:
        indexes = [
            # Expired claims of a queue, oldest deadline first.
            models.Index(fields=["queue", "deadline"], name="leasequeue_claim_deadline"),
            # What a node holds: settle calls without a token.
            models.Index(fields=["node"], name="leasequeue_claim_node"),
        ]
        triggers = [
            # The condition is evaluated without a function call: other claims pay next to nothing.
            LocalTrigger(
                name="flow",
                when=pgtrigger.After,
                operation=pgtrigger.UpdateOf("seqs") | pgtrigger.Delete,
                condition=pgtrigger.Condition("OLD.flags & 384 <> 0"),
                func=_NOTE_LEFT,
            ),
        ]

    def __str__(self) -> str:
        return f"claim {self.token}"
