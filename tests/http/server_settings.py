"""The settings of the servers that the tests start: as in production, with what a test asks for in its environment."""

import json
import os

from django.conf import global_settings

from testproject.settings import *  # noqa: F403  (the whole of the other settings, by design)

DEBUG = False
ALLOWED_HOSTS = ["*"]
LEASEQUEUE = {
    **json.loads(os.environ.get("LEASEQUEUE_TEST", "{}")),
    "API": {"KEY_CACHE_SECONDS": 0, "COUNT_SECONDS": 0, **json.loads(os.environ.get("LEASEQUEUE_TEST_API", "{}"))},
}
STORAGES = {**global_settings.STORAGES, **json.loads(os.environ.get("LEASEQUEUE_TEST_STORAGES", "{}"))}
LOGGING = {
    "version": 1, "disable_existing_loggers": False, "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {
        "django_leasequeue": {"handlers": ["console"], "level": os.environ.get("LEASEQUEUE_TEST_LOG", "WARNING")}
    },
}  # fmt: skip
