"""LargeObject: a payload, body or result that stands in a storage of the host."""

from __future__ import annotations

from django.db import models


class LargeObject(models.Model):
    """An object in a storage: noted before it is uploaded, forgotten after it is removed there.

    ``seq`` is the job that it belongs to; null: it was noted, and no transaction has given it to a job yet; 0: it is
    being removed, and cannot be given to a job any more. The job itself holds the reference that readers follow.
    """

    id = models.BigAutoField(primary_key=True)
    seq = models.BigIntegerField(null=True)
    created_at = models.DateTimeField()
    size = models.BigIntegerField()
    #: Alias of Django's STORAGES.
    storage = models.TextField()
    name = models.TextField()

    class Meta:
        default_permissions = ()
        indexes = [
            # Those of a job that moves; those of no job, the oldest first; those that are being removed. An expression,
            # so that no plan made on an empty table looks for an id in it.
            models.Index("seq", models.F("id") + 0, name="leasequeue_largeobject_seq"),
        ]

    def __str__(self) -> str:
        return f"object {self.name}"
