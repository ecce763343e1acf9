"""How far a task is, for the user who started it: what a page shows, and the view that its script asks."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from ..exceptions import InvalidOption
from .api import TaskResultDoesNotExist, TaskResultStatus, task_backends
from .exceptions import TaskNotFound
from .results import LeaseQueueTaskResult

#: Characters of a progress's text, and the largest number that a browser counts exactly.
MOST_TEXT, MOST = 200, 2**53


def shown(result: LeaseQueueTaskResult[Any]) -> dict[str, Any]:
    """Return what a page shows of a task: no argument, no error, no return value.

    ``done`` and ``of`` are ``None`` where the task has not reported them.
    """
    words = {
        TaskResultStatus.READY: gettext("Waiting"),
        TaskResultStatus.RUNNING: gettext("Running"),
        TaskResultStatus.SUCCESSFUL: gettext("Done"),
        TaskResultStatus.FAILED: gettext("Failed"),
    }
    done: Any = None
    of: Any = None
    detail = ""
    if result.status is TaskResultStatus.SUCCESSFUL:
        done = of = 1
    elif isinstance(report := result.progress, dict):
        first: Any = report.get("done")
        last: Any = report.get("of")
        # No bool, and nothing that a browser could not count.
        if type(first) in (int, float) and type(last) in (int, float) and 0 < last <= MOST and abs(first) <= MOST:
            of, done = last, min(max(first, 0), last)
            detail = gettext("%(done)s of %(of)s") % {"done": done, "of": of}
        detail = str(report.get("text") or detail)[:MOST_TEXT]
    return {
        "status": result.status.value, "ended": result.is_finished, "words": words[result.status], "detail": detail,
        "done": done, "of": of,
    }  # fmt: skip


def progress_view(
    allowed: Callable[[HttpRequest, LeaseQueueTaskResult[Any]], bool], *, backend: str = "default"
) -> Callable[..., HttpResponse]:
    """Return the view that pages with ``{% leasequeue_progress %}`` ask: the progress of one task as JSON.

    It goes into the host's URLs: ``path("progress/<str:id>/", progress_view(is_mine), name="leasequeue_progress")``.
    A task that is not there and one that the user may not see are both answered 404.

    Args:
        allowed: called with the request and the task's result; returns whether this user may see it.
        backend: alias in ``TASKS``.

    Raises:
        ImproperlyConfigured: ``allowed`` is not such a function.
    """
    if not callable(allowed) or iscoroutinefunction(allowed):
        raise ImproperlyConfigured(
            "allowed must be a function that takes the request and the task's result and returns whether this user may"
            f" see it (no coroutine function); it is {allowed!r}."
        )

    @never_cache
    @require_safe
    def view(request: HttpRequest, id: str) -> HttpResponse:
        try:
            result = task_backends[backend].get_result(id)
        except (TaskResultDoesNotExist, TaskNotFound, InvalidOption) as error:
            raise Http404 from error
        if not isinstance(result, LeaseQueueTaskResult) or not allowed(request, result):
            raise Http404
        return JsonResponse(shown(result))

    return view
