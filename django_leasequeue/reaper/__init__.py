"""The reaper: the duties that one process does for all workers.

Workers and `runreaper` start it; it calls the engine and imports nothing above it. Start at `reaper.py` (the list of
duties, and the loop that leads); `leader.py` is the election, `shift.py` runs the duties.
"""

from __future__ import annotations

from .duty import BUDGET, Duty, DutyRun, OutOfTime
from .reaper import Reaper, register, registered, standard_duties

__all__ = ["BUDGET", "Duty", "DutyRun", "OutOfTime", "Reaper", "register", "registered", "standard_duties"]
