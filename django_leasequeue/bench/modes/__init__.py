"""The modes: one file each, with a ``SUMMARY`` and a ``run``."""

from __future__ import annotations

from types import ModuleType

from . import backlog, buffer, claim, drain, duplicate, enqueue, latency, memory, request, scheduled, snapshot

#: By name, in the order in which they run.
MODES: dict[str, ModuleType] = {
    "enqueue": enqueue,
    "claim": claim,
    "drain": drain,
    "latency": latency,
    "snapshot": snapshot,
    "backlog": backlog,
    "scheduled": scheduled,
    "memory": memory,
    "duplicate": duplicate,
    "buffer": buffer,
    "request": request,
}
