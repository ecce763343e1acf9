"""What the demo's tasks find out."""

from __future__ import annotations

from django.db import models


class SourceReport(models.Model):
    """What is in one Python source file."""

    path = models.TextField(unique=True)
    sha256 = models.CharField(max_length=64)
    size = models.PositiveIntegerField(help_text="bytes")
    lines = models.PositiveIntegerField()
    functions = models.PositiveIntegerField()
    classes = models.PositiveIntegerField()
    imports = models.JSONField(default=list, help_text="names of the modules that the file imports")
    attempt = models.PositiveSmallIntegerField(default=1)
    waited_ms = models.FloatField(help_text="from enqueue to the task's start")
    took_ms = models.FloatField(help_text="from the task's start to the report")
    reported_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["path"]

    def __str__(self) -> str:
        return self.path


class Total(models.Model):
    """What is in all files of a directory, written by a task of several steps."""

    path = models.TextField()
    files = models.PositiveIntegerField()
    lines = models.PositiveIntegerField()
    written_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.path
