"""The settings of the soak's processes: a project as others have it, with short leases so that much happens."""

from testproject.settings import *  # noqa: F403  (the whole of the other settings, by design)

from .evidence import HALTED, HALTED_LEASE_MS, LEASE_MS

DEBUG = False
ALLOWED_HOSTS = ["*"]

#: How often a job is delivered: more often than faults can meet one that harms nobody.
DELIVERIES = 10

_TASKS = {
    "preset": "django",
    "lease_ms": LEASE_MS,
    "max_deliveries": DELIVERIES,
    "backoff": "fixed",
    "backoff_base_ms": 200,
    "result_ttl_ms": 120_000,
}
_LOG = {"preset": "topics", "type": "log"}

LEASEQUEUE = {
    "QUEUES": {
        # Leases that survive a crash of PostgreSQL; and those of the default, which it may take back.
        "sure": {**_TASKS, "leases_durable": True},
        "swift": _TASKS,
        HALTED: {**_TASKS, "lease_ms": HALTED_LEASE_MS},
        "keyed": {**_TASKS, "leases_durable": True, "dedup_until": "result_ttl", "result_ttl_ms": 86_400_000},
        "web": {
            "preset": "topics",
            "lease_ms": LEASE_MS,
            "max_deliveries": DELIVERIES,
            "durability": "fsync",
            "leases_durable": True,
        },
        # Here who acks late may still be heard; claims are lost as often as their consumers like.
        "late": {
            "preset": "topics",
            "max_deliveries": 0,
            "durability": "fsync",
            "leases_durable": True,
            "late_ack": "accept",
        },
        "log": {**_LOG, "durability": "fsync"},
        "fastlog": {**_LOG, "durability": "disk"},
    },
    "API": {"ACCESS": "open"},
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"timed": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "timed"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {"django_leasequeue": {"level": "INFO"}},
}
