"""Tags for the host's own templates: ``{% load leasequeue %}``."""

from __future__ import annotations

from typing import Any

from django import template
from django.urls import reverse
from django.utils.translation import gettext

from ..tasks.progress import shown
from ..tasks.results import LeaseQueueTaskResult

register = template.Library()


@register.inclusion_tag("leasequeue/progress.html")
def leasequeue_progress(
    result: Any, label: str = "", next: str = "", view: str = "leasequeue_progress"
) -> dict[str, Any]:
    """Show how far a task is, kept up to date by a script until the task ends.

    ``label`` names the bar for screen readers; ``next``: address of a link that is shown once the task has ended;
    ``view``: name of the URL of ``progress_view``.
    """
    if not isinstance(result, LeaseQueueTaskResult):
        raise template.TemplateSyntaxError(
            f"leasequeue_progress takes the result of a task of LeaseQueueBackend; it is {result!r:.200}."
        )
    found = {"url": reverse(view, args=[result.id]), "label": label or gettext("Progress"), "next": next}
    return {**shown(result), **found}
