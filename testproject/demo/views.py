"""A page of a user's own task: started by a button, its progress shown until its end."""

from __future__ import annotations

import sysconfig
from typing import Any, cast

from django.contrib import admin
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from django_leasequeue.tasks.api import TaskResultDoesNotExist

from .tasks import survey


def is_mine(request: HttpRequest, result: Any) -> bool:
    """Return whether the user of a request has started a task."""
    return request.user.is_authenticated and result.task.tags == {"user": request.user.pk}


@login_required(login_url="admin:login")
def page(request: HttpRequest, id: str | None = None) -> HttpResponse:
    """The button, and the task that it has started."""
    result = None
    if id is not None:
        try:
            result = survey.get_result(id)
        except TaskResultDoesNotExist as error:
            raise Http404 from error
        if not is_mine(request, result):
            raise Http404
    context = {**admin.site.each_context(request), "title": "Survey", "result": result}
    return render(request, "demo/survey.html", context)


@require_POST
@login_required(login_url="admin:login")
def start(request: HttpRequest) -> HttpResponse:
    """Start a task of this user, and lead to its page."""
    directory = sysconfig.get_path("stdlib")
    return redirect("demo_survey", survey.using(tags={"user": cast("int", request.user.pk)}).enqueue(directory).id)
