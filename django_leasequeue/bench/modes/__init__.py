"""The modes: one file each, with a ``SUMMARY`` and a ``run``."""

from __future__ import annotations

from types import ModuleType

from . import claim, drain, enqueue

#: By name, in the order in which they run.
MODES: dict[str, ModuleType] = {
    "enqueue": enqueue,
    "claim": claim,
    "drain": drain,
}
