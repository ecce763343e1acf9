"""Until when a lease is surely held, by this process's own clock: no database has to be asked, none can be away."""

from __future__ import annotations

#: So many seconds before its end a lease counts as over, at most, and of a short one such a part: whoever works on it
#: has time to stop before somebody else begins.
NOTICE, PART = 1.25, 0.25


def surely_until(asked: float, lease: float) -> float:
    """Return the monotonic time until which a lease is surely held.

    Args:
        asked: monotonic time before the database was asked for it.
        lease: its length in seconds.
    """
    return asked + lease - min(NOTICE, PART * lease)
