"""The reaper: what is done for all workers by one of them."""

from __future__ import annotations

from .duty import BUDGET, Duty, OutOfTime, Turn, register, registered
from .reaper import Reaper
from .standard import standard_duties

__all__ = ["BUDGET", "Duty", "OutOfTime", "Reaper", "Turn", "register", "registered", "standard_duties"]
