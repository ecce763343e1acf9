"""ApiKey: who may use the HTTP doors, and for what."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q


class ApiScope(models.TextChoices):
    """What a key may do."""

    READ = "read", "read: state, list, diff, watch"
    WRITE = "write", "write: append records, ack, nack, extend"
    DELETE = "delete", "delete: topics and records"
    ADMIN = "admin", "admin: create and configure topics"
    PROJECTS = "projects", "projects: act for every project (X-Project-Id)"
    EMIT = "emit", "emit: events that jobs wait for"


class ApiKey(models.Model):
    """A key of the HTTP doors. The secret is shown once, when the key is made; only its SHA-256 is kept."""

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
    #: To the minute: a request does not write.
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "API key"
        constraints = [
            models.CheckConstraint(
                condition=Q(scopes__contained_by=["read", "write", "delete", "admin", "projects", "emit"]),
                name="leasequeue_apikey_scopes",
            ),
            models.CheckConstraint(
                condition=~Q(scopes__contains=["projects"]) | Q(topics=[]), name="leasequeue_apikey_projects"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"

    def clean(self) -> None:
        """Refuse a key for every project that is limited to some topics: prefixes say nothing of others' topics."""
        if ApiScope.PROJECTS in self.scopes and self.topics:
            raise ValidationError("A key with the scope projects cannot be limited to topics: make a key for each.")
