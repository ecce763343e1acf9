"""The Django app."""

from __future__ import annotations

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy

from . import conf
from .conf import process
from .conf.loglines import CALLED, LOGGERS, contain, keep_to_lines, quieten_tasks


class LeaseQueueConfig(AppConfig):
    """``INSTALLED_APPS = [..., "pgtrigger", "django_leasequeue"]``."""

    name = "django_leasequeue"
    label = "leasequeue"
    verbose_name = gettext_lazy("Lease queue")
    default_auto_field = "django.db.models.BigAutoField"

    def import_models(self) -> None:
        if "pgtrigger" not in {app.name for app in apps.app_configs.values()}:
            # Else Django reports an invalid attribute of the first model's Meta.
            raise ImproperlyConfigured(
                "'pgtrigger' is not in INSTALLED_APPS. Add it before 'django_leasequeue': its triggers guard the"
                " tables."
            )
        with process.collector_paused():
            super().import_models()

    @process.collector_paused()
    def ready(self) -> None:
        from .checks import database, settings  # noqa: F401  (importing them registers the checks)
        from .engine import codec, model_writes
        from .engine.queues import declared
        from .models import JobQuerySet, QueueQuerySet, RecurringTask
        from .reaper import declarations, tables

        keep_to_lines(*LOGGERS)
        contain(*CALLED)
        quieten_tasks()
        JobQuerySet.engine = QueueQuerySet.engine = model_writes
        RecurringTask.codec = codec
        post_migrate.connect(declared.on_migrate, sender=self, dispatch_uid="django_leasequeue.engine.queues.declared")
        post_migrate.connect(declarations.on_migrate, sender=self, dispatch_uid="django_leasequeue.reaper.recurring")
        tables.register_holds()
        if conf.problems():  # the checks report them
            return
        if conf.settings.METRICS.OPENTELEMETRY:
            from .metrics.otel import instrument

            instrument()
        if conf.settings.RUNSERVER_WORKER:
            from .worker.embedded import start_beside_runserver

            start_beside_runserver()
