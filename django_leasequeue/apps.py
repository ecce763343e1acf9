"""The Django app."""

from __future__ import annotations

from django.apps import AppConfig


class LeaseQueueConfig(AppConfig):
    """``INSTALLED_APPS = [..., "pgtrigger", "django_leasequeue"]``."""

    name = "django_leasequeue"
    label = "leasequeue"
    verbose_name = "Lease queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401  (registers the system checks)
        from .spark import retention

        retention.register()
