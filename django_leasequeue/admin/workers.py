"""Workers in the admin: who is there, what each runs now, and asking one to stop."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path

from .. import engine
from ..engine.limits import MAX_SEQ
from ..models import Worker
from . import pages, reading
from .audit import record
from .base import PageAdmin


@admin.register(Worker)
class WorkerAdmin(PageAdmin[Worker]):
    """Workers say of themselves that they are there."""

    def page_urls(self) -> list[URLPattern]:
        """The pages of workers."""
        return [
            path("", self.view(self.workers), name="leasequeue_workers"),
            # The name that the list of apps looks for.
            path("", self.view(self.workers), name="leasequeue_worker_changelist"),
            path("<int:pk>/change/", self.view(self.change), name="leasequeue_worker_change"),
            path("<int:pk>/stop/", self.act_view(self.stop), name="leasequeue_worker_stop"),
        ]

    def workers(self, request: HttpRequest) -> HttpResponse:
        """The workers, the last seen first; ``?node=`` shows one."""
        pages.require(request, "view_worker")
        node = request.GET.get("node", "").replace("\x00", "")
        workers = reading.read(reading.read_workers([node] if node else None))
        context = {
            "workers": workers,
            "node": node,
            "most": reading.MAX_WORKERS if len(workers) == reading.MAX_WORKERS else None,
            "can_stop": pages.allowed(request, "stop_worker"),
        }
        return pages.page(request, self.admin_site, "workers.html", context, title="Workers")

    def change(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Where Django's log of actions links to."""
        pages.require(request, "view_worker")
        if reading.instance(Worker, pk) is None:
            messages.warning(request, "This worker is gone.")
        return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_workers"))

    def stop(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask a worker to stop: a POST."""
        pages.require(request, "view_worker", "stop_worker")
        if pk > MAX_SEQ:
            raise Http404
        with transaction.atomic(using=reading.alias()):
            found = engine.run(reading.ask_worker_to_stop(pk), using=reading.alias())
            if found is None:
                messages.error(request, "This worker is gone.")
            elif found[1]:
                messages.info(request, f"{found[0]} had been asked before.")
            else:
                record(request, "stop_worker", obj=Worker(pk=pk, node=found[0]), detail={"node": found[0]})
                messages.success(
                    request, f"{found[0]} will stop at its next sign of life: it claims nothing more and ends its jobs."
                )
        return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_workers"))
