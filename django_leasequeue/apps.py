"""The Django app."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class LeaseQueueConfig(AppConfig):
    """``INSTALLED_APPS = [..., "pgtrigger", "django_leasequeue"]``."""

    name = "django_leasequeue"
    label = "leasequeue"
    verbose_name = "Lease queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks, declarations  # noqa: F401  (registers the system checks)
        from .spark import retention

        post_migrate.connect(declarations.on_migrate, sender=self, dispatch_uid="django_leasequeue.declarations")
        retention.register()
