"""Pages while the database is away: 503 with Retry-After, not an error of the server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse

from ..engine.outage import Outage, passes
from ..exceptions import LargeStorageError

_outage = Outage(
    logging.getLogger("django_leasequeue.admin"), "The database is away: pages are answered 503", "The database is back"
)


def _not_ready(error: Exception) -> HttpResponse:
    """Return the answer while the database is away; raise what is something else."""
    if isinstance(error, LargeStorageError):
        return HttpResponse(f"{error}\n", content_type="text/plain", status=503, headers={"Retry-After": "5"})
    if not passes(error):
        raise error
    _outage.begins("pages", error)
    text = "The database is not reachable or has no free connection. Try again in a moment.\n"
    return HttpResponse(text, content_type="text/plain", status=503, headers={"Retry-After": "5"})


def or_not_ready(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return the view with an answer for the time that the database is away, login and template included."""

    @wraps(view)
    def answer(*args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            response = view(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  (what is not of the database is raised again)
            return _not_ready(error)
        if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
            # The page's statements run when it is rendered, after the view.
            response.render = _rendering(response.render)  # type: ignore[method-assign]  # of this response alone
        else:
            _outage.ends("pages")
        return response

    return answer


def _rendering(render: Callable[[], Any]) -> Callable[[], Any]:
    def rendered() -> Any:
        try:
            found = render()
        except Exception as error:  # noqa: BLE001  (what is not of the database is raised again)
            return _not_ready(error)
        _outage.ends("pages")
        return found

    return rendered
