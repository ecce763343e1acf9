"""What a figure depends on: machine, versions, the server's settings."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import django
import psycopg

from django_leasequeue import __version__

from .sql import statement


def environment(connection: psycopg.Connection[Any], *, local: bool) -> dict[str, Any]:
    """Return what the figures were measured on.

    Args:
        connection: to the server under test.
        local: whether the server runs on this machine.
    """
    settings = dict(connection.execute(statement("server_settings")).fetchall())
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "django_leasequeue": __version__,
        "python": platform.python_version(),
        "django": django.get_version(),
        "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
        "postgresql": settings.pop("server_version"),
        "postgresql_settings": settings,
        "postgresql_local": local,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cpus": cpus(),
        "load_before": load(),
    }


def cpus() -> int:
    """Return how many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load() -> float | None:
    """Return the machine's load of the last minute; ``None`` where it has none."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def remarks(found: dict[str, Any]) -> list[str]:
    """Say what makes the figures less than they could be, or not comparable with others."""
    said = []
    server = found["postgresql_settings"]
    if server["fsync"] == "off" or server["synchronous_commit"] == "off":
        said.append("PostgreSQL does not wait for the disk (fsync or synchronous_commit is off): rates are flattered.")
    before = found["load_before"]
    if before is not None and before > 0.5 * found["cpus"]:
        said.append(
            f"The machine was busy (load {before} on {found['cpus']} CPUs): the ratios hold, the rates do not say much."
        )
    if not found["postgresql_local"]:
        said.append("PostgreSQL's CPU time cannot be read from here: it runs elsewhere, or as processes we cannot see.")
    return said
