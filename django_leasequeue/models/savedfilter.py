"""SavedFilter: a filter of a page that somebody wants to find again."""

from __future__ import annotations

from django.db import models


class SavedFilter(models.Model):
    """A named filter: its owner's, or shared with everybody who may see the page."""

    name = models.CharField(max_length=80)
    #: The owner's primary key as text, and their name when it was saved.
    owner = models.CharField(max_length=64)
    owner_name = models.CharField(max_length=255, default="", blank=True)
    shared = models.BooleanField(default=False)
    query = models.TextField(help_text="the filter as a query string")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="leasequeue_savedfilter_name"),
        ]
        indexes = [
            models.Index(fields=["name"], name="leasequeue_savedfilter_shared", condition=models.Q(shared=True)),
        ]

    def __str__(self) -> str:
        return self.name
