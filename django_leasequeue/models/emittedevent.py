"""EmittedEvent: something that jobs wait for has happened."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from .fields import PlainJSONField
from .read_only import ReadOnlyManager, ReadOnlyModel


class EmittedEvent(ReadOnlyModel):
    """An event that was emitted (``emit``), kept for who waits for it until ``expires_at``."""

    instead: ClassVar[dict[str, str]] = {"create": "emit(name, payload)"}

    pk = models.CompositePrimaryKey("project", "name")
    project = models.TextField(db_collation="C")
    name = models.TextField(db_collation="C")
    payload = PlainJSONField(null=True)
    emitted_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    objects = ReadOnlyManager["EmittedEvent"]()

    class Meta:
        permissions = (("emit_event", "Can emit events"),)
        indexes = (models.Index(fields=["expires_at"], name="leasequeue_emittedevent_expiry"),)

    def __str__(self) -> str:
        return f"event {self.name}"
