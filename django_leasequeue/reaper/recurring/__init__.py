"""Recurring tasks: enqueued by the clock, each tick once."""

from __future__ import annotations

from .schedule import CronsimMissing, InvalidSchedule, parse

__all__ = ["CronsimMissing", "InvalidSchedule", "parse"]
