"""The pages over all queues, Overview and Tasks.

Django's list of apps shows models: each of the two has one, without a table.
"""

from __future__ import annotations

from django.apps.registry import Apps
from django.contrib import admin
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path

from . import pages
from .base import ReadOnlyAdmin
from .overview import overview
from .task_list import task_list

#: Apart from the models of the project: migrations, permissions and content types know nothing of these two.
_APART = Apps()


class Overview(models.Model):  # noqa: DJ008  (there are no instances)
    """Stands for the overview."""

    class Meta:
        apps = _APART
        app_label = "leasequeue"
        managed = False
        verbose_name_plural = "overview"


class Task(models.Model):  # noqa: DJ008  (there are no instances)
    """Stands for the list of tasks."""

    class Meta:
        apps = _APART
        app_label = "leasequeue"
        managed = False
        verbose_name_plural = "tasks"


@admin.register(Overview)
class OverviewAdmin(ReadOnlyAdmin[Overview]):
    """All queues and workers on one page."""

    permission = "view_queue"

    def page_urls(self) -> list[URLPattern]:
        """The page, by its own name and by the one that the list of apps looks for."""
        return [
            path("", self.view(self.page), name="leasequeue_overview"),
            path("", self.view(self.page), name="leasequeue_overview_changelist"),
        ]

    def page(self, request: HttpRequest) -> HttpResponse:
        """Answer with the overview."""
        pages.require(request, self.permission)
        return overview(request, self.admin_site)


@admin.register(Task)
class TaskAdmin(ReadOnlyAdmin[Task]):
    """The runs of each task."""

    permission = "view_job"

    def page_urls(self) -> list[URLPattern]:
        """The page, by its own name and by the one that the list of apps looks for."""
        return [
            path("", self.view(self.page), name="leasequeue_tasks"),
            path("", self.view(self.page), name="leasequeue_task_changelist"),
        ]

    def page(self, request: HttpRequest) -> HttpResponse:
        """Answer with the list of tasks."""
        pages.require(request, self.permission)
        return task_list(request, self.admin_site)
