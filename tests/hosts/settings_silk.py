"""Silk. It records requests and what querysets ask; statements by cursors, Django's or ours, it does not look at."""

from typing import Any

from testproject.settings import INSTALLED_APPS, MIDDLEWARE
from tests.hosts.settings_plain import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "silk"]
SEES = 1
MIDDLEWARE = ["silk.middleware.SilkyMiddleware", *MIDDLEWARE]


def seen(response: Any) -> int:
    from silk.models import SQLQuery

    return SQLQuery.objects.filter(query__contains='FROM "leasequeue_').count()
