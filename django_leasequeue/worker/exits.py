"""The exit codes of ``runworker``."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The reason for which a worker ended."""

    #: Asked to stop, or nothing left to do; every job that had started has ended.
    OK = 0
    #: It could not start: wrong options or settings (Django's CommandError).
    USAGE = 1
    #: Stopped before every running job had ended: those were told, and given back.
    GIVEN_BACK = 3
    #: A part of the worker broke: a bug. What it held was given back, or comes back when the leases expire.
    BROKEN = 70
    #: It asks for a new process: a job outlived its hard timeout, or (with processes) it ran its ``max_jobs``.
    RECYCLE = 75
