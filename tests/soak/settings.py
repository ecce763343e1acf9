"""The settings of the soak's processes: a project as others have it, with short leases so that much happens."""

import os

from django_leasequeue.devdb import database_from_url
from testproject.settings import *  # noqa: F403  (the whole of the other settings, by design)
from testproject.settings import DATABASES

from .evidence import FAR, HALTED, HALTED_LEASE_MS, LEASE_MS

DEBUG = False
ALLOWED_HOSTS = ["*"]

#: How often a job is delivered: more often than faults can meet one that harms nobody.
DELIVERIES = 10

_TASKS = {
    "preset": "django", "lease_ms": LEASE_MS, "max_deliveries": DELIVERIES, "backoff": "fixed", "backoff_base_ms": 200,
    "result_ttl_ms": 120_000,
}  # fmt: skip
_TOPIC = {"preset": "topics", "durability": "fsync", "leases_durable": True}

LEASEQUEUE = {
    "QUEUES": {
        # Leases that survive a crash of PostgreSQL; and those of the default, which it may take back.
        "sure": {**_TASKS, "leases_durable": True},
        "swift": _TASKS,
        # On the second server.
        FAR: {**_TASKS, "leases_durable": True},
        HALTED: {**_TASKS, "lease_ms": HALTED_LEASE_MS},
        "keyed": {**_TASKS, "leases_durable": True, "dedup_until": "result_ttl", "result_ttl_ms": 86_400_000},
        "web": {**_TOPIC, "lease_ms": LEASE_MS, "max_deliveries": DELIVERIES},
        # Here who acks late may still be heard; claims are lost as often as their consumers like.
        "late": {**_TOPIC, "max_deliveries": 0, "late_ack": "accept"},
        # Consumers that share a buffer: several calls are one transaction.
        "folded": {**_TOPIC, "lease_ms": LEASE_MS, "max_deliveries": 0},
        "log": {"preset": "topics", "type": "log", "durability": "fsync"},
        "fastlog": {"preset": "topics", "type": "log", "durability": "disk"},
    },
    "API": {"ACCESS": "open"},
    "DATABASES": ["default", FAR],
    "ROUTER": "tests.soak.settings.route",
}
DATABASES = {**DATABASES, FAR: database_from_url(os.environ["SOAK_FAR_URL"])}

LOGGING = {
    "version": 1, "disable_existing_loggers": False,
    "formatters": {"timed": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "timed"}},
    "root": {"handlers": ["console"], "level": "WARNING"}, "loggers": {"django_leasequeue": {"level": "INFO"}},
}  # fmt: skip


def route(project: str, queue: str) -> str:
    return FAR if queue == FAR else "default"
