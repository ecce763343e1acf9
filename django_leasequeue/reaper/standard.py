"""The standard duties and how often they have their turns."""

from __future__ import annotations

from .duty import Duty
from .janitor import (
    Census,
    JobSteps,
    LargeObjects,
    MissedEvents,
    UniqueKeys,
    awaited_results,
    end_moves,
    expire_samples,
    expire_workers,
    forget_events,
    keep_partitions,
    note_heads,
    note_timeline,
    summarize,
    tidy,
)
from .recurring.duty import RecurringDuty
from .upkeep import Expiry, Floors, advance, expire_results, expire_workflows, mend_floors, operations, promote, sweep


def standard_duties() -> list[Duty]:
    """Return the duties of a new reaper: some of them remember things, so no two reapers share them."""
    census = Census()
    return [
        Duty("sweep", sweep, 0.5),
        Duty("promote", promote, 0.5),
        Duty("advance", advance, 0.2),
        Duty("floors", Floors(), 0.2),
        Duty("mend_floors", mend_floors, 20.0),
        Duty("expire", Expiry(), 1.0),
        Duty("recurring", RecurringDuty(), 1.0),
        Duty("operations", operations, 0.5),
        Duty("results", expire_results, 5.0),
        Duty("workflows", expire_workflows, 30.0),
        Duty("samples", census.sample, 30.0),
        Duty("heads", note_heads, 10.0),
        Duty("timeline", note_timeline, 1.0),
        Duty("partitions", keep_partitions, 60.0),
        Duty("summaries", summarize, 60.0),
        Duty("sample_retention", expire_samples, 300.0),
        Duty("workers", expire_workers, 60.0),
        Duty("tidy", tidy, 30.0),
        Duty("large", LargeObjects(), 10.0),
        Duty("unique_keys", UniqueKeys(), 30.0),
        Duty("job_steps", JobSteps(), 30.0),
        Duty("missed_events", MissedEvents(), 5.0),
        Duty("awaited_results", awaited_results, 1.0),
        Duty("events", forget_events, 60.0),
        Duty("moves", end_moves, 5.0),
        Duty("orphans", census.clear_up, 3_600.0),
    ]
