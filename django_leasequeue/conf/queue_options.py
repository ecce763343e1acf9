"""Every option of a queue: its type, range, default, help and the APIs that show it.

Derived from this table: the defaults and checks of `engine/queues/presets.py`, the columns that `sql/queues/` writes,
the defaults of `models/queue.py`, the admin's form, and the configuration of a topic over HTTP with its OpenAPI.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import TextChoices

from ..enums import Backoff, DedupUntil, Discard, Durability, ExhaustAt, LateAck, PriorityOrder, QueueType, Requeue

DAY_MS = 86_400_000
#: The longest TTL: ten years.
MAX_TTL_MS = 10 * 366 * DAY_MS
#: The largest cap.
MAX_CAP = 2**62
MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class QueueOption:
    """One option. A value is of one of these kinds: a choice, a number, a boolean, a topic, a name or an object."""

    default: Any
    #: Type of its column in PostgreSQL.
    column: str
    #: Heading under which the admin shows it; none for what cannot change.
    group: str = ""
    #: The help text in the admin and in OpenAPI.
    help: str = ""
    choices: type[TextChoices] | None = None
    #: The range of a number, and whether a number outside is cut to it instead of refused.
    low: int = 0
    high: int = 0
    clamp: bool = False
    #: Whether it is a field of the topic configuration of ``/v0/topics``, under the same name.
    http: bool = False

    @property
    def kind(self) -> str:
        """``choice``, ``integer``, ``boolean``, ``topic``, ``name`` or ``object``."""
        if self.choices is not None:
            return "choice"
        kinds = {"bool": "boolean", "jsonb": "object", "text": "topic" if self.default is None else "name"}
        return kinds.get(self.column, "integer")


OPTIONS: dict[str, QueueOption] = {
    "type": QueueOption("queue", "text", choices=QueueType, http=True),
    # Leases
    "lease_ms": QueueOption(
        30_000, "int", "Leases", "How long a claim holds a job.", low=100, high=DAY_MS, clamp=True, http=True
    ),
    "late_ack": QueueOption("reject", "text", "Leases", "An ack after the lease has expired.", choices=LateAck),
    "leases_durable": QueueOption(False, "bool", "Leases", "Whether a claim waits for the disk.", http=True),
    "claim_jitter_ms": QueueOption(
        0, "int", "Leases", "How long claims wait to be served together.", high=5_000, clamp=True, http=True
    ),
    "concurrency": QueueOption(0, "int", "Leases", "Leased jobs at once; 0: no limit.", high=10_000),
    "requeue": QueueOption("original", "text", "Leases", "Where a job goes that comes back.", choices=Requeue),
    # Tries
    "max_deliveries": QueueOption(0, "int", "Tries", "Deliveries of a job; 0: no limit.", high=MAX_INT, http=True),
    "exhaust_at": QueueOption("claim", "text", "Tries", "When a job without deliveries left dies.", choices=ExhaustAt),
    "dead_letter": QueueOption(
        None,
        "text",
        "Tries",
        "self: dead jobs stay in this queue; the name of a topic: they move there; empty: tried for ever",
        http=True,
    ),
    "dead_ttl_ms": QueueOption(
        0, "bigint", "Tries", "0: dead letters stay until they are retried or discarded", high=MAX_TTL_MS
    ),
    "backoff": QueueOption("none", "text", "Tries", "How the delay grows from try to try.", choices=Backoff),
    "backoff_base_ms": QueueOption(1_000, "int", "Tries", "Delay after the first failure.", high=DAY_MS),
    "backoff_max_ms": QueueOption(3_600_000, "int", "Tries", "The longest delay.", high=DAY_MS),
    # Order
    "priority_order": QueueOption("desc", "text", "Order", "Which priority is claimed first.", choices=PriorityOrder),
    "priority_min": QueueOption(
        0, "smallint", "Order", "The lowest priority that is allowed.", low=-32_767, high=32_767
    ),
    "priority_max": QueueOption(
        9, "smallint", "Order", "The highest priority that is allowed.", low=-32_767, high=32_767
    ),
    # What is kept
    "result_ttl_ms": QueueOption(0, "bigint", "What is kept", "0: nothing is kept of a completed job", high=MAX_TTL_MS),
    "dedup_until": QueueOption("terminal", "text", "What is kept", "How long a key is taken.", choices=DedupUntil),
    "idempotency_window_ms": QueueOption(
        120_000, "int", "What is kept", "How long an idempotency key of a write is remembered.", high=DAY_MS, http=True
    ),
    "ttl_ms": QueueOption(
        0, "bigint", "What is kept", "Age at which records expire; 0: never.", high=MAX_TTL_MS, http=True
    ),
    "cap_records": QueueOption(
        0, "bigint", "What is kept", "Live records at most; 0: no cap.", high=MAX_CAP, http=True
    ),
    "cap_bytes": QueueOption(
        0, "bigint", "What is kept", "Bytes of data and meta at most; 0: no cap.", high=MAX_CAP, http=True
    ),
    "discard": QueueOption(
        "old",
        "text",
        "What is kept",
        "At the cap: the oldest leave, or writes are refused.",
        choices=Discard,
        http=True,
    ),
    # Storage
    "durability": QueueOption("disk", "text", "Storage", "What a commit waits for.", choices=Durability, http=True),
    "log_enqueued": QueueOption(True, "bool", "Storage", "Whether enqueueing writes an event."),
    "serializer": QueueOption("json", "text", "Storage", "Name of the serializer of payloads."),
    "metadata": QueueOption({}, "jsonb", "Storage", "Notes of yours, an object."),
}
