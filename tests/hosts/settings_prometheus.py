"""django-prometheus: its backend counts the statements of an alias."""

from typing import Any

from testproject.settings import DATABASES
from tests.hosts.settings_plain import *  # noqa: F403

DATABASES = {"default": {**DATABASES["default"], "ENGINE": "django_prometheus.db.backends.postgresql"}}


def seen(response: Any) -> float:
    from django_prometheus.db import execute_total

    count: float = execute_total.labels("default", "postgresql")._value.get()
    return count
