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
        from .engine.queues import declarations
        from .reaper.recurring import declared as recurring
        from .spark import retention

        post_migrate.connect(
            declarations.on_migrate, sender=self, dispatch_uid="django_leasequeue.engine.queues.declarations"
        )
        post_migrate.connect(recurring.on_migrate, sender=self, dispatch_uid="django_leasequeue.reaper.recurring")
        retention.register()
