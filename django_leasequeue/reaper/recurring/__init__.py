"""Recurring tasks: enqueued by the clock, each tick once.

A duty of the reaper; the admin and the checks read its schedules. Start at `duty.py`.
"""

from __future__ import annotations

from .schedule import CronsimMissing, InvalidSchedule, parse

__all__ = ["CronsimMissing", "InvalidSchedule", "parse"]
