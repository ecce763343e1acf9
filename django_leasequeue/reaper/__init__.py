"""The reaper: what is done for all workers by one of them.

Workers and `runreaper` start it; it calls the engine and imports nothing above it. Start at `reaper.py` (the
list of duties, and the loop that does them under a leader's lock).
"""

from __future__ import annotations

from .reaper import BUDGET, Duty, OutOfTime, Reaper, Turn, register, registered, standard_duties

__all__ = ["BUDGET", "Duty", "OutOfTime", "Reaper", "Turn", "register", "registered", "standard_duties"]
