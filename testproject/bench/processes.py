"""CPU time and memory of processes: from /proc on Linux, from psutil elsewhere if it is installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

_PROC = Path("/proc")
_HAS_PROC = (_PROC / "self" / "stat").exists()


class Times(NamedTuple):
    """CPU seconds of a process, and of its children that have ended and were waited for."""

    parent: int
    own: float
    ended_children: float


def _psutil() -> Any:
    try:
        return import_module("psutil")
    except ImportError:
        return None


def times(pid: int) -> Times | None:
    """Return the CPU times of a process; ``None`` if it is gone or cannot be read."""
    if _HAS_PROC:
        try:
            text = (_PROC / str(pid) / "stat").read_text()
        except OSError:
            return None
        # The name stands in parentheses and may hold anything; the numbered fields begin behind the last one.
        fields = text.rpartition(")")[2].split()
        tick = os.sysconf("SC_CLK_TCK")
        user, system, ended_user, ended_system = (int(value) / tick for value in fields[11:15])
        return Times(int(fields[1]), user + system, ended_user + ended_system)
    psutil = _psutil()
    if psutil is None:
        return None
    try:
        process = psutil.Process(pid)
        cpu = process.cpu_times()
        return Times(process.ppid(), cpu.user + cpu.system, getattr(cpu, "children_user", 0.0))
    except psutil.Error:
        return None


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU seconds of one process, to the nanosecond where the kernel counts them; ``None`` if it is gone."""
    if _HAS_PROC:
        try:
            spent = int((_PROC / str(pid) / "schedstat").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            spent = 0
        if spent:
            return spent / 1e9
    found = times(pid)
    return None if found is None else found.own


def resident_bytes(pid: int) -> int | None:
    """Return the memory that a process holds in RAM; ``None`` if it is gone or cannot be read."""
    if _HAS_PROC:
        try:
            pages = (_PROC / str(pid) / "statm").read_text().split()[1]
        except OSError:
            return None
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    psutil = _psutil()
    if psutil is None:
        return None
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


def _pids() -> Iterator[int]:
    if _HAS_PROC:
        for entry in _PROC.iterdir():
            if entry.name.isdigit():
                yield int(entry.name)
    elif (psutil := _psutil()) is not None:
        yield from psutil.pids()


def family_cpu(parent: int) -> float | None:
    """Return the CPU seconds of a process, its children, and its children that have ended; ``None`` if it is gone."""
    head = times(parent)
    if head is None:
        return None
    total = head.own + head.ended_children
    for pid in _pids():
        found = times(pid)
        if found is not None and found.parent == parent:
            total += found.own + found.ended_children
    return total


def postmaster_of(backend: int, database: str) -> int | None:
    """Return the parent of a PostgreSQL backend if it runs on this machine; ``None`` otherwise.

    Args:
        backend: what ``pg_backend_pid()`` said.
        database: its database: a process of that number may be something else when the server is elsewhere.
    """
    found = times(backend)
    if found is None:
        return None
    if _HAS_PROC:
        try:
            title = (_PROC / str(backend) / "cmdline").read_text()
        except OSError:
            return None
        if not title.startswith("postgres:") or database not in title:
            return None
    return found.parent
