"""Queues in the admin: the list, the page of one, what can be done to it."""

from __future__ import annotations

import time
from typing import Any

from django.contrib import admin, messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path

from .. import engine
from ..engine.queues.stats import counts_by_id
from ..exceptions import LeaseQueueError
from ..models import Queue
from . import pages, reading
from .audit import record
from .base import PageAdmin
from .queue_form import QueueForm
from .queue_list import queue_list
from .queue_page import queue_page

#: What can be purged, in words.
PURGEABLE = ("ready", "delayed", "dead")
#: Jobs of one batch of a purge, and seconds after which it stops and says how far it came.
_BATCH = 5_000
_SECONDS = 8.0

#: What is done to a queue, and the permission that it needs.
_ACTIONS = {"pause": "pause_queue", "resume": "pause_queue", "purge": "purge_queue"}


@admin.register(Queue)
class QueueAdmin(PageAdmin[Queue]):
    """Queues are made by their first job, the settings or the API; here they are looked at and steered."""

    def page_urls(self) -> list[URLPattern]:
        """The pages of queues."""
        return [
            path("", self.view(self.changelist), name="leasequeue_queue_changelist"),
            path("<int:pk>/change/", self.view(self.change), name="leasequeue_queue_change"),
            path("<int:pk>/options/", self.view(self.options), name="leasequeue_queue_options"),
            path("<int:pk>/act/", self.act_view(self.act), name="leasequeue_queue_act"),
        ]

    def changelist(self, request: HttpRequest) -> HttpResponse:
        """The queues by name."""
        pages.require(request, "view_queue")
        return queue_list(request, self.admin_site)

    def change(self, request: HttpRequest, pk: int) -> HttpResponse:
        """One queue."""
        pages.require(request, "view_queue")
        return queue_page(request, self.admin_site, _find(pk))

    def options(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The form of its options."""
        pages.require(request, "view_queue", "change_queue")
        queue = _find(pk)
        info = reading.read(engine.get(queue.name, project=queue.project))
        if info is None:
            raise Http404
        form = QueueForm(info.config, queue.name, data=request.POST or None)
        if request.method == "POST" and form.is_valid():
            changed = form.changed()
            with transaction.atomic(using=reading.alias()):
                if changed:
                    options = {name: form.cleaned_data[name] for name in form.config if name in form.cleaned_data}
                    engine.run(engine.configure(queue.name, project=queue.project, **options), using=reading.alias())
                    _record(request, "edit_queue", queue, detail={"changed": changed})
            messages.success(request, f"Changed: {', '.join(changed)}." if changed else "Nothing was changed.")
            return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_queue_change", pk))
        crumbs = [
            pages.Crumb("Queues", pages.url(self.admin_site, "leasequeue_queue_changelist")),
            pages.Crumb(str(queue), pages.url(self.admin_site, "leasequeue_queue_change", pk)),
        ]
        context = {"queue": queue, "form": form}
        return pages.page(
            request, self.admin_site, "queue_options.html", context, title=f"Options of {queue}", crumbs=crumbs
        )

    def act(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Pause, resume or purge: a POST with ``action``; a purge also with ``states`` and the name typed."""
        action = pages.action_of(request, _ACTIONS, "view_queue")
        queue = _find(pk)
        try:
            if action == "purge":
                self._purge(request, queue)
            else:
                self._pause(request, queue, action)
        except LeaseQueueError as error:
            messages.error(request, str(error))
        return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_queue_change", pk))

    def _pause(self, request: HttpRequest, queue: Queue, action: str) -> None:
        with transaction.atomic(using=reading.alias()):
            paused = action == "pause"
            engine.run(engine.pause(queue.name, paused=paused, project=queue.project), using=reading.alias())
            _record(request, action, queue)
        after = "nothing is claimed from it" if action == "pause" else "its jobs are claimed again"
        messages.success(request, f"{queue} is {action}d: {after}.")

    def _purge(self, request: HttpRequest, queue: Queue) -> None:
        states = [state for state in PURGEABLE if state in request.POST.getlist("states")]
        if request.POST.get("typed", "").strip() != queue.name or not states:
            messages.error(request, "Nothing was removed: choose what is to go, and type the name of the queue.")
            return
        before = reading.read(counts_by_id([queue.pk])).get(queue.pk)
        detail = {"states": states, "there": None if before is None else before.ready + before.delayed + before.dead}
        gone, since, left = 0, time.monotonic(), True
        while left and time.monotonic() - since < _SECONDS:
            purge = engine.purge(queue.name, states=states, project=queue.project, size=_BATCH)
            with transaction.atomic(using=reading.alias()):
                if left := bool(removed := engine.run(purge, using=reading.alias())):
                    # A line for each batch: what is removed and its line stand together, whatever happens next.
                    _record(request, "purge", queue, counts={"removed": removed}, detail=detail)
            gone += removed
        rest = " There is more: the time for one request was over. Purge again to go on." if left else ""
        messages.add_message(
            request, messages.WARNING if left else messages.SUCCESS, f"{gone:,} jobs of {queue} were removed.{rest}"
        )


def _find(pk: int) -> Queue:
    queue = reading.instance(Queue, pk)
    if queue is None:
        raise Http404(f"There is no queue {pk}.")
    return queue


def _record(request: HttpRequest, action: str, queue: Queue, **facts: dict[str, Any]) -> None:
    record(request, action, obj=queue, project=queue.project, queue=queue.name, **facts)
