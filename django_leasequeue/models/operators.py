"""Models for operators: workers, API keys, bulk operations, the audit and saved filters."""

from __future__ import annotations

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils import timezone

from .base import Guard, ReadOnlyModel


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

    #: Seconds since it was seen, and whether it counts as dead: of rows that ``reaper.concerns.seen`` returns.
    silent: float
    gone: bool

    class Meta:
        permissions = [("stop_worker", "Can ask workers to stop")]
        indexes = [models.Index(fields=["seen_at"], name="leasequeue_worker_seen")]


class ReaperTerm(ReadOnlyModel):
    """The leader of the reapers, in the only row. A transaction that locks the row delays the next term."""

    instead = {"create": "a reaper", "update": "a reaper", "delete": "nothing: the next term follows"}
    says = "{0.holder}"

    term = models.BigIntegerField(primary_key=True)
    single = models.BooleanField(unique=True, default=True)
    #: The leader raises it every few seconds.
    beat = models.BigIntegerField(default=0)
    #: Empty when the leader has resigned.
    holder = models.TextField()
    address = models.TextField()
    began_at = models.DateTimeField()
    beat_at = models.DateTimeField()
    #: The state of the leader's duties at its last beat.
    duties = models.JSONField(default=list)


class ApiScope(models.TextChoices):
    """The permissions of a key."""

    READ = "read", "read: state, list, diff, watch; arguments of tasks without secrets"
    WRITE = "write", "write: append records, ack, nack, extend"
    DELETE = "delete", "delete: topics and records"
    ADMIN = "admin", "admin: create and configure topics"
    PROJECTS = "projects", "projects: act for every project (X-Project-Id)"
    EMIT = "emit", "emit: events that jobs wait for"
    PAYLOADS = "payloads", "payloads: arguments of tasks in full, and claims of tasks"
    METRICS = "metrics", "metrics: figures for Prometheus"


class ApiKey(models.Model):
    """A key of the HTTP APIs. The secret is shown once; only its SHA-256 is kept."""

    name = models.CharField(max_length=128, help_text="Who uses it, and for what.")
    #: The public part of the token: finds the row.
    prefix = models.CharField(max_length=16, unique=True, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    scopes = ArrayField(models.CharField(max_length=16, choices=ApiScope.choices), default=list)
    topics = ArrayField(
        models.CharField(max_length=255),
        default=list,
        blank=True,
        help_text="Only topics whose names begin so; empty for all.",
    )
    project = models.CharField(max_length=256, default="", blank=True)
    rate_per_second = models.PositiveIntegerField(
        null=True, blank=True, help_text="Requests a second; empty for the API's default."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    #: To the minute, so that most requests do not write.
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "API key"
        constraints = [
            models.CheckConstraint(
                condition=Q(
                    scopes__contained_by=["read", "write", "delete", "admin", "projects", "emit", "payloads", "metrics"]
                ),
                name="leasequeue_apikey_scopes",
            ),
            models.CheckConstraint(
                condition=~Q(scopes__contains=["projects"]) | Q(topics=[]), name="leasequeue_apikey_projects"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"

    @property
    def state(self) -> str:
        """``active``, ``expired`` or ``revoked``."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= timezone.now() else "active"

    def clean(self) -> None:
        """Refuse a key for every project with topics: their prefixes mean nothing in other projects."""
        if ApiScope.PROJECTS in self.scopes and self.topics:
            raise ValidationError("A key with the scope projects cannot be limited to topics: make a key for each.")


class OperationKind(models.TextChoices):
    """The action on each dead letter."""

    RETRY = "retry", "retry"
    REDRIVE = "redrive", "redrive to another queue"
    DISCARD = "discard", "discard"


class OperationState(models.TextChoices):
    """How far an operation is; the first three are active."""

    PENDING = "pending", "waiting for the reaper"
    RUNNING = "running", "running"
    PAUSED = "paused", "paused"
    DONE = "done", "done"
    CANCELLED = "cancelled", "cancelled"
    FAILED = "failed", "failed"


#: States in which an operation still may do something.
ACTIVE = (OperationState.PENDING, OperationState.RUNNING, OperationState.PAUSED)


class BulkOperation(ReadOnlyModel):
    """One operation over selected dead letters, or over those that matched a filter at ``frozen_at``.

    The transaction of each batch writes the progress, so after a crash it continues exactly there.
    """

    instead = {
        "create": "manage.py leasequeue_dlq or the admin's dead letters",
        "update": "the admin's page of the operation",
    }
    says = "{0.kind} of dead letters, number {0.pk}"

    kind = models.CharField(max_length=8, choices=OperationKind.choices)
    state = models.CharField(max_length=9, choices=OperationState.choices, default=OperationState.PENDING)
    #: Its tenant and queue; null: all.
    project = models.CharField(max_length=256, null=True, blank=True)
    queue = models.CharField(max_length=255, null=True, blank=True)
    #: The filter as a query string; and the numbers of a selection, in place of it.
    filters = models.TextField(default="", blank=True)
    seqs = ArrayField(models.BigIntegerField(), null=True, blank=True)
    #: Later dead letters are not changed.
    frozen_at = models.DateTimeField()
    target = models.CharField(max_length=255, null=True, blank=True)
    rate = models.FloatField(null=True, blank=True, help_text="jobs a second; empty: as fast as it goes")
    jitter_ms = models.IntegerField(default=0)
    reason = models.TextField(default="", blank=True)
    #: Of a retry or redrive: the step that runs again with those after it.
    from_step = models.TextField(null=True, blank=True)
    user_id = models.CharField(max_length=64, default="", blank=True)
    username = models.CharField(max_length=255, default="", blank=True)
    #: The count on the confirmation page; capped: there may be more.
    expected = models.BigIntegerField(null=True)
    expected_capped = models.BooleanField(default=False)
    #: Dead letters that were read, changed, skipped, and the reasons to skip.
    looked_at = models.BigIntegerField(default=0)
    done = models.BigIntegerField(default=0)
    conflicts = models.BigIntegerField(default=0)
    conflict_counts = models.JSONField(default=dict)
    #: The first conflicts: [[seq, why], ...].
    conflict_sample = models.JSONField(default=list)
    #: Where the next batch begins, and when the pace allows it.
    cursor = models.JSONField(null=True)
    paced_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    changed_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    error = models.TextField(default="", blank=True)

    class Meta:
        default_permissions = ("view",)
        # For the reaper.
        indexes = [models.Index(fields=["id"], name="leasequeue_operation_active", condition=Q(state__in=ACTIVE))]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "queue", "kind"],
                name="leasequeue_operation_one_active",
                condition=Q(state__in=ACTIVE),
                nulls_distinct=False,
            ),
            models.CheckConstraint(condition=Q(rate__isnull=True) | Q(rate__gt=0), name="leasequeue_operation_rate"),
            models.CheckConstraint(condition=Q(jitter_ms__range=(0, 86_400_000)), name="leasequeue_operation_jitter"),
            models.CheckConstraint(
                condition=~Q(kind=OperationKind.REDRIVE) | Q(target__isnull=False), name="leasequeue_operation_target"
            ),
            models.CheckConstraint(
                condition=~Q(kind=OperationKind.DISCARD) | ~Q(reason=""), name="leasequeue_operation_reason"
            ),
        ]

    @property
    def is_active(self) -> bool:
        """Whether it is not over."""
        return self.state in ACTIVE


class PausedTask(ReadOnlyModel):
    """A task whose jobs do not start: workers give them back until it is resumed."""

    instead = {"create": "tasks.pause()", "delete": "tasks.resume()"}
    says = "paused task {0.name}"

    id = models.BigAutoField(primary_key=True)
    project = models.TextField(default="", blank=True)
    name = models.TextField(db_collation="C")
    paused_at = models.DateTimeField()
    #: The user who did it; empty: the host's own code.
    paused_by = models.TextField(default="", blank=True)

    class Meta:
        default_permissions = ()
        permissions = [("pause_task", "Can pause and resume tasks")]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="leasequeue_pausedtask_name")]


class OperatorAction(models.Model):
    """One line of the audit, never changed.

    Users are text, so that a line outlives its user, who may be in another database.
    """

    at = models.DateTimeField()
    user_id = models.CharField(max_length=64, default="", blank=True)
    username = models.CharField(max_length=255, default="", blank=True)
    #: ``admin``, ``command``, ``reaper``, or ``code`` for the host's own.
    source = models.CharField(max_length=16, default="admin")
    #: ``retry``, ``redrive``, ``discard``, ``edit``, ``pause``, ...; ``retry.done`` when an operation has ended.
    action = models.CharField(max_length=32)
    project = models.CharField(max_length=256, default="", blank=True)
    queue = models.CharField(max_length=255, default="", blank=True)
    #: The jobs that were named, the first hundred.
    seqs = ArrayField(models.BigIntegerField(), default=list, blank=True)
    filters = models.TextField(default="", blank=True)
    counts = models.JSONField(default=dict, blank=True)
    reason = models.TextField(default="", blank=True)
    detail = models.JSONField(default=dict, blank=True)
    operation = models.ForeignKey(
        BulkOperation, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, related_name="+"
    )

    class Meta:
        default_permissions = ("view",)
        indexes = [
            # One person's, one queue's, one operation's lines, newest first.
            models.Index(fields=["username", "-id"], name="leasequeue_action_user"),
            models.Index(fields=["queue", "-id"], name="leasequeue_action_queue"),
            models.Index(fields=["action", "-id"], name="leasequeue_action_action"),
        ]
        triggers = [
            Guard(
                name="append_only",
                when=pgtrigger.Before,
                operation=pgtrigger.Update | pgtrigger.Delete,
                constraint="leasequeue_action_append_only",
                message="the audit is append-only; maintenance passes with"
                ' pgtrigger.ignore("leasequeue.OperatorAction:append_only")',
            )
        ]

    def __str__(self) -> str:
        return f"{self.action} by {self.username or self.source}"


class SavedFilter(models.Model):
    """A named filter: its owner's, or shared with all who may see the page."""

    name = models.CharField(max_length=80)
    #: The owner's primary key as text, and their name when it was saved.
    owner = models.CharField(max_length=64)
    owner_name = models.CharField(max_length=255, default="", blank=True)
    shared = models.BooleanField(default=False)
    query = models.TextField(help_text="the filter as a query string")
    #: The page that it is for: ``deadletters`` or ``jobs``.
    page = models.CharField(max_length=16, default="deadletters", db_default="deadletters")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="leasequeue_savedfilter_name")]
        indexes = [models.Index(fields=["name"], name="leasequeue_savedfilter_shared", condition=Q(shared=True))]

    def __str__(self) -> str:
        return self.name
