"""Workflows and limits with their jobs, and the steps and events of durable tasks."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from ..enums import MemberState, TurnKind, WorkflowShape, WorkflowState
from .base import PlainJSONField, ReadOnlyModel, SameNumber
from .queue import Queue


class Workflow(ReadOnlyModel):
    """A graph of jobs. Its row is the lock under which its members change; only workers and the reaper take it."""

    instead = {
        "create": "chain(...).enqueue()",
        "update": "the calls of WorkflowResult",
        "delete": "WorkflowResult.cancel()",
    }

    uid = models.UUIDField(unique=True)
    project = models.CharField(max_length=256, default="", blank=True)
    name = models.CharField(max_length=255, default="", blank=True)
    state = models.SmallIntegerField(choices=WorkflowState.choices, default=WorkflowState.RUNNING)
    #: The form of its value: what ``wait()`` of its result returns.
    shape = models.SmallIntegerField(
        choices=WorkflowShape.choices, default=WorkflowShape.MAPPING, db_default=WorkflowShape.MAPPING
    )
    total = models.IntegerField()
    #: Parents of all its nodes together.
    edges = models.IntegerField(default=0, db_default=0)
    completed = models.IntegerField(default=0)
    failed = models.IntegerField(default=0)
    cancelled = models.IntegerField(default=0)
    #: The job that starts when one has failed.
    on_failure = models.BigIntegerField(null=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            # Retention: the ended ones, oldest first.
            models.Index(
                fields=["expires_at"], name="leasequeue_workflow_expires", condition=Q(expires_at__isnull=False)
            )
        ]

    def __str__(self) -> str:
        return self.name or str(self.uid)


_LIMITS = {
    "create": "engine.set_limits(), or the limit of a task",
    "update": "manage.py leasequeue_limits set",
    "delete": "manage.py leasequeue_limits set --unlimited",
}


class Limit(ReadOnlyModel):
    """A limit as the code names it. Each of its keys has its own slots and rate."""

    instead = _LIMITS
    says = "{0.name}"

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
    #: An operator has set it: the code's values have no effect until a reset.
    pinned = models.BooleanField(default=False)
    #: The code's newest values, in the order of the fields above; null: it has not named the limit yet.
    code = models.JSONField(null=True)
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


class LimitKey(ReadOnlyModel):
    """A key of a limit. Its row is the lock under which slots are counted; only workers and the reaper take it."""

    instead = _LIMITS
    says = "{0.key}"

    limit = models.ForeignKey(Limit, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    key = models.TextField(db_collation="C")
    #: Time at which every start that was admitted is paid for by the rate.
    paid_until = models.DateTimeField(null=True)
    #: The starts of the last ``per_ms``: times (microseconds since 1970, rounded up), oldest first; how many at each.
    started = ArrayField(models.BigIntegerField(), null=True)
    counts = ArrayField(models.IntegerField(), null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["limit", "key"], name="leasequeue_limitkey_key")]


class Member(ReadOnlyModel):
    """A job under a limit or in a workflow.

    While it may not start it stands in Delayed at a time that never comes. Its row changes only under the lock of its
    key or of its workflow.
    """

    says = "member {0.seq}"

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
    #: Whether it starts only if its parent fails; else it is removed.
    for_failure = models.BooleanField(default=False, db_default=False)
    #: Its start after the end of its parents: so much later, and not before this time.
    delay_ms = models.BigIntegerField(null=True)
    not_before = models.DateTimeField(null=True)
    #: Its place among the nodes of its workflow.
    place = models.IntegerField(default=0)
    label = models.TextField(default="")
    #: The path of its task in a workflow: its job may be gone before that.
    task = models.TextField(null=True)
    parents = ArrayField(models.BigIntegerField(), null=True)
    children = ArrayField(models.BigIntegerField(), null=True)

    class Meta:
        indexes = [
            # The next jobs of a key, in the order of their ranks and numbers.
            models.Index(fields=["key", "rank", "seq"], name="leasequeue_member_waits", condition=Q(waits=True)),
            models.Index(fields=["key"], name="leasequeue_member_taken", condition=Q(taken=True)),
            models.Index(
                fields=["workflow", "seq"], name="leasequeue_member_workflow", condition=Q(workflow__isnull=False)
            ),
        ]


class FlowTurn(ReadOnlyModel):
    """An event that may make other jobs ready, written by the transaction that causes it, read by claimers."""

    says = "turn {0.pk}"

    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    #: Not before this time, for events of a rate, which claimers of such jobs take; 1970 for all others.
    at = models.DateTimeField()
    kind = models.SmallIntegerField(choices=TurnKind.choices)
    #: Of ``ADMIT`` the key, of ``EXTEND`` the workflow, of ``FOLLOW`` the node's old job number.
    key = models.BigIntegerField(null=True)
    seqs = ArrayField(models.BigIntegerField(), null=True)
    detail = models.JSONField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["queue", "at", "id"], name="leasequeue_flowturn_due"),
            # What was added to a workflow and is not counted in its row yet.
            models.Index(fields=["key"], name="leasequeue_flowturn_extend", condition=Q(kind=TurnKind.EXTEND)),
            # The new numbers of jobs whose nodes do not have them yet.
            models.Index(fields=["key"], name="leasequeue_flowturn_follow", condition=Q(kind=TurnKind.FOLLOW)),
            models.Index(fields=["key"], name="leasequeue_flowturn_key", condition=Q(kind=TurnKind.ADMIT)),
        ]


class JobStep(ReadOnlyModel):
    """A recorded step of a job (``current().step``): later deliveries get its value and do not run it again.

    Sleeps and waits are steps too, without a value while they last. Steps are removed with their job.
    """

    instead = {
        "create": "current().step() in a task",
        "update": "current().step() under another name",
        "delete": "Job.objects.dead().retry(from_step=name): it and those after it run again",
    }
    says = "step {0.name} of job {0.seq}"

    pk = models.CompositePrimaryKey("seq", "name")
    seq = models.BigIntegerField()
    #: Its place among the steps of the job, in the order in which they were kept.
    number = models.IntegerField()
    name = models.TextField(db_collation="C")
    value = PlainJSONField(null=True)
    done_at = models.DateTimeField()
    #: The delivery that recorded it.
    delivery = models.IntegerField()
    #: Of a sleep or a wait: when it ends at the latest.
    until = models.DateTimeField(null=True)
    #: The event that it waits for, and that event's project; null when the wait is over.
    project = models.TextField(db_collation="C", null=True)
    event = models.TextField(db_collation="C", null=True)
    #: The import path of the function that undoes it, and "atomic" if that is one; null: nothing undoes it.
    undo = models.TextField(null=True)

    job = SameNumber("leasequeue.Job", related_name="steps")

    class Meta:
        indexes = (
            models.Index(
                fields=["event", "project", "seq"], name="leasequeue_jobstep_event", condition=Q(event__isnull=False)
            ),
            models.Index(fields=["seq"], name="leasequeue_jobstep_waiting", condition=Q(event__isnull=False)),
            # What sleeps, the oldest first: for people and figures.
            models.Index(
                fields=["done_at", "seq"],
                name="leasequeue_jobstep_asleep",
                condition=Q(value__isnull=True, event__isnull=True),
            ),
        )


class EmittedEvent(ReadOnlyModel):
    """An emitted event (``emit``), kept for waiting jobs until ``expires_at``."""

    instead = {
        "create": "emit(name, payload)",
        "update": "emit() under another name: the first of a name counts",
        "delete": "its expires_at, after which it goes",
    }
    says = "event {0.name}"

    pk = models.CompositePrimaryKey("project", "name")
    project = models.TextField(db_collation="C")
    name = models.TextField(db_collation="C")
    payload = PlainJSONField(null=True)
    emitted_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        permissions = (("emit_event", "Can emit events"),)
        indexes = (models.Index(fields=["expires_at"], name="leasequeue_emittedevent_expiry"),)
