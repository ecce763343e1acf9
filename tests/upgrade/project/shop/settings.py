"""The settings of the project, without a word that a release has not."""

import os

import django

from django_leasequeue.devdb import database_from_url

SECRET_KEY = "upgrades"
TIME_ZONE, USE_TZ = "UTC", True
INSTALLED_APPS = [
    "django.contrib.contenttypes", "django.contrib.auth", "django.contrib.postgres", "pgtrigger", "django_leasequeue",
    "shop",
]  # fmt: skip
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": database_from_url(os.environ["DATABASE_URL"])}
TASKS = {"default": {"BACKEND": "django_leasequeue.tasks.LeaseQueueBackend", "QUEUES": ["default"]}}
#: Results stay until they are compared.
LEASEQUEUE = {
    "QUEUES": {
        "default": {
            "preset": "django", "lease_ms": 10_000, "max_deliveries": 3, "backoff": "fixed", "backoff_base_ms": 200,
            "result_ttl_ms": 86_400_000,
        }
    }
}  # fmt: skip
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}
