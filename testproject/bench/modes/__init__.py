"""The modes: one file each, with a ``SUMMARY`` and a ``run``."""

from __future__ import annotations

from types import ModuleType

from . import (
    backlog,
    batch,
    buffer,
    claim,
    crowd,
    drain,
    duplicate,
    durable,
    enqueue,
    flow,
    http,
    latency,
    limits,
    log,
    memory,
    peers,
    request,
    scheduled,
    servers,
    single,
    snapshot,
    triage,
    zaqar,
)

#: By name, in the order in which they run.
MODES: dict[str, ModuleType] = {
    "enqueue": enqueue,
    "single": single,
    "claim": claim,
    "log": log,
    "drain": drain,
    "latency": latency,
    "snapshot": snapshot,
    "crowd": crowd,
    "backlog": backlog,
    "scheduled": scheduled,
    "memory": memory,
    "duplicate": duplicate,
    "buffer": buffer,
    "batch": batch,
    "request": request,
    "zaqar": zaqar,
    "triage": triage,
    "flow": flow,
    "limits": limits,
    "durable": durable,
    "http": http,
    "servers": servers,
    "peers": peers,
}

#: Those that run when no mode is named: the others need more than the database.
DEFAULT_MODES = [name for name, mode in MODES.items() if not getattr(mode, "ON_REQUEST", False)]
