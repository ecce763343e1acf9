"""OperatorAction: what people did, by whom, when, to what and why."""

from __future__ import annotations

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models

from .guard import Guard
from .operation import BulkOperation


class OperatorAction(models.Model):
    """One line of the audit. It is written once; nothing changes it.

    Users are kept as text, so that a line outlives its user, and the user may be in another database.
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
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} by {self.username or self.source}"
