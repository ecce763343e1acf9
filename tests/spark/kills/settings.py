"""The settings of the workers and producers: leases that a crash of PostgreSQL takes back, and ends of every kind."""

from testproject.settings import *  # noqa: F403  (the whole of the other settings, by design)

QUEUE = "work"
LEASEQUEUE = {
    "QUEUES": {
        QUEUE: {"preset": "django", "lease_ms": 4_000, "max_deliveries": 3, "backoff": "fixed", "backoff_base_ms": 200}
    }
}
