"""The page and its address: ``path("", include("django_leasequeue.http.metrics.urls"))`` gives ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.urls import path
from rest_framework.request import Request

from ... import conf
from ...engine.outage import passes
from ...engine.queues import routing
from ...metrics import load_extra
from ...metrics.figures import DatabaseFigures, last_look, look
from ...metrics.prometheus import exposition, families, of_each, pools, streams
from ..access import METRICS, PROJECTS
from ..auth import require_all_topics
from ..backlog import backlogs
from ..errors import ApiError
from ..views import ApiView

if TYPE_CHECKING:
    from prometheus_client import Metric


class MetricsView(ApiView):
    """Figures of the queues of a key's project; with the scope ``projects`` of all."""

    http_method_names = ["get", "head"]
    #: It answers no JSON: it is not in the OpenAPI document.
    schema = None  # type: ignore[assignment]  # as DRF's documentation says

    async def get(self, request: Request) -> HttpResponse:
        try:
            load_extra("prometheus_client", "prometheus")
        except ImproperlyConfigured as error:
            raise ApiError(501, "not_installed", str(error)) from error
        access, project = self.access, self.project
        require_all_topics(access, "read the metrics")
        sees = None if PROJECTS in access.scopes else lambda of, _: of == project
        aliases = routing.aliases()
        if len(aliases) == 1:
            found = [*families(await self._look(aliases[0]), sees)]
        else:
            looks: dict[str, DatabaseFigures | None] = {}
            for alias in aliases:
                try:
                    looks[alias] = await self._look(alias)
                except Exception as error:
                    if not passes(error):
                        raise
                    looks[alias] = None
            found = [*of_each(looks, sees)]
        body, content_type = exposition([*found, *pools(), *_streams()], request.META.get("HTTP_ACCEPT", ""))
        return HttpResponse(body, content_type=content_type, headers={"Content-Length": str(len(body))})

    get.scopes = frozenset({METRICS})  # type: ignore[attr-defined]  # as ``endpoint`` does

    async def _look(self, alias: str) -> DatabaseFigures:
        memory, most = last_look(alias), conf.settings.METRICS.MAX_QUEUES
        return memory.recall() or memory.keep(await self.runner.on(alias).run(look(memory.log, most)))


def _streams() -> Iterator[Metric]:
    found = [backlog for _, backlog in backlogs.items()]
    figures = zip(*((len(each.streams), each.bytes, each.slow) for each in found), strict=True)
    return streams(*map(sum, figures)) if found else streams(0, 0, 0)


app_name = "leasequeue_metrics"

urlpatterns = [path("metrics", MetricsView.as_view(), name="metrics")]
