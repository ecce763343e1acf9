"""CPU time and memory of processes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import psutil


class Times(NamedTuple):
    """CPU seconds of a process, and of its children that have ended and were waited for."""

    parent: int
    own: float
    ended_children: float


def times(pid: int) -> Times | None:
    """Return the CPU times of a process; ``None`` if it is gone or cannot be read."""
    try:
        process = psutil.Process(pid)
        cpu = process.cpu_times()
        return Times(process.ppid(), cpu.user + cpu.system, cpu.children_user + cpu.children_system)
    except psutil.Error:
        return None


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU seconds of one process, to the nanosecond where the kernel counts them; ``None`` if it is gone."""
    try:
        # psutil counts in hundredths of a second. Some kernels do not count here, and say 0.
        spent = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        spent = 0
    if spent:
        return spent / 1e9
    found = times(pid)
    return None if found is None else found.own


def resident_bytes(pid: int) -> int | None:
    """Return the memory that a process holds in RAM; ``None`` if it is gone or cannot be read."""
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return None


def family_cpu(parent: int) -> float | None:
    """Return the CPU seconds of a process, its children, and its children that have ended; ``None`` if it is gone."""
    try:
        head = psutil.Process(parent)
        pids = [head.pid, *(child.pid for child in head.children())]
    except psutil.Error:
        return None
    return sum(found.own + found.ended_children for found in map(times, pids) if found is not None)


def postmaster_of(backend: int, database: str) -> int | None:
    """Return the parent of a PostgreSQL backend if it runs on this machine; ``None`` otherwise.

    Args:
        backend: what ``pg_backend_pid()`` said.
        database: its database: a process of that number may be something else when the server is elsewhere.
    """
    try:
        process = psutil.Process(backend)
        title = " ".join(process.cmdline())
        return process.ppid() if title.startswith("postgres:") and database in title else None
    except psutil.Error:
        return None
