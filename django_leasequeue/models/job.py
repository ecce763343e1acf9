"""Job: a live job of a queue, or a record of a log."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import Q

from .enums import JobState
from .guard import Guard
from .queue import Queue

#: OLD.state -> NEW.state moves that the engine makes; everything else is refused by the database.
LEGAL_MOVES: dict[int, tuple[int, ...]] = {
    JobState.READY: (JobState.LEASED, JobState.DELAYED, JobState.DEAD),
    JobState.DELAYED: (JobState.READY,),
    JobState.LEASED: (JobState.READY, JobState.DELAYED, JobState.DEAD),
    JobState.DEAD: (JobState.READY, JobState.DELAYED),
}


def _illegal_moves() -> str:
    legal = " OR ".join(
        f"(OLD.state = {old:d} AND NEW.state IN ({', '.join(str(int(state)) for state in new)}))"
        for old, new in LEGAL_MOVES.items()
    )
    return f"OLD.state <> NEW.state AND NOT ({legal})"


class Job(models.Model):
    """One live job. Finished jobs leave the table; what is remembered of them is in JobResult.

    There is no foreign key in the database: its check would cost one extra query per row on every enqueue.
    """

    seq = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    position = models.BigIntegerField()
    available_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    claim = models.BigIntegerField(null=True)
    deadline = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    first_claimed_at = models.DateTimeField(null=True)
    claimed_at = models.DateTimeField(null=True)
    dead_at = models.DateTimeField(null=True)
    result_ttl_ms = models.BigIntegerField(null=True)
    source_queue = models.BigIntegerField(null=True)
    source_seq = models.BigIntegerField(null=True)
    deliveries = models.IntegerField(default=0)
    max_deliveries = models.IntegerField(null=True)
    rank = models.SmallIntegerField(default=0)
    state = models.SmallIntegerField(choices=JobState.choices, default=JobState.READY)
    key = models.TextField(null=True, db_collation="C")
    name = models.TextField(null=True)
    tag = models.TextField(null=True, db_collation="C")
    node = models.TextField(null=True)
    origin = models.TextField(null=True)
    reply_to = models.TextField(null=True)
    data = models.JSONField(null=True)
    meta = models.JSONField(null=True)
    body = models.BinaryField(null=True)
    progress = models.JSONField(null=True)
    errors = models.JSONField(null=True)
    error_type = models.TextField(null=True)
    error = models.TextField(null=True)
    fingerprint = models.TextField(null=True, db_collation="C")

    class Meta:
        permissions = [
            ("view_payload", "Can see the payload of jobs"),
            ("retry_job", "Can retry dead letters"),
            ("redrive_job", "Can redrive dead letters to another queue"),
            ("discard_job", "Can discard dead letters"),
            ("edit_job", "Can edit the payload of a dead letter and retry it"),
            ("release_job", "Can release leased jobs"),
            ("cancel_job", "Can cancel jobs that nobody has started"),
        ]
        indexes = [
            # What a claim walks, in claim order. Leased, delayed, dead rows are not in it.
            models.Index(
                fields=["queue", "rank", "position"], name="leasequeue_job_ready", condition=Q(state=JobState.READY)
            ),
            # What promotion reads: the due ones only.
            models.Index(
                fields=["queue", "available_at"], name="leasequeue_job_delayed", condition=Q(state=JobState.DELAYED)
            ),
            # Groups of dead letters, and the newest of one: in full order, so that no planner sorts a group.
            models.Index(
                fields=["queue", "fingerprint", "dead_at", "seq"],
                name="leasequeue_job_dead",
                condition=Q(dead_at__isnull=False),
            ),
            # Dead letters of a queue, the newest or the oldest first.
            models.Index(
                fields=["queue", "dead_at", "seq"], name="leasequeue_job_died", condition=Q(dead_at__isnull=False)
            ),
            # Delete by tag and claim by tag, in claim order within one tag.
            models.Index(
                fields=["queue", "tag", "rank", "position"],
                name="leasequeue_job_tag",
                condition=Q(tag__isnull=False),
            ),
            # What the message TTL removes; a live lease protects its job, so leased rows are left out.
            models.Index(
                fields=["queue", "expires_at"],
                name="leasequeue_job_expires",
                condition=Q(expires_at__isnull=False) & ~Q(state=JobState.LEASED),
            ),
            # Reading a log in order of its numbers.
            models.Index(fields=["queue", "seq"], name="leasequeue_job_record", condition=Q(state=JobState.RECORD)),
        ]
        constraints = [
            # The client's job id; key first, so that a result id alone finds its job.
            models.UniqueConstraint(fields=["key", "queue"], name="leasequeue_job_key", condition=Q(key__isnull=False)),
            models.CheckConstraint(
                condition=~Q(state=JobState.LEASED)
                | Q(node__isnull=False, claim__isnull=False, deadline__isnull=False),
                name="leasequeue_job_lease_complete",
            ),
            models.CheckConstraint(
                condition=~Q(state=JobState.DELAYED) | Q(available_at__isnull=False),
                name="leasequeue_job_delay_complete",
            ),
        ]
        triggers = [
            Guard(
                name="state_moves",
                when=pgtrigger.Before,
                operation=pgtrigger.UpdateOf("state"),
                condition=pgtrigger.Condition(_illegal_moves()),
                constraint="leasequeue_job_state_moves",
                message="a job cannot make this move between states; use the engine (claim, release, redrive)",
            ),
        ]

    def __str__(self) -> str:
        return f"job {self.seq}"
