"""Until when a lease is surely held, by this process's own clock: no database has to be asked, none can be away."""

from __future__ import annotations

#: Seconds before the end of a lease at which it counts as over: whoever works on it has time to stop before somebody
#: else begins. At most so many, and of a short lease such a part. (A second is promised; the rest is for a machine that
#: is busy.)
NOTICE, PART = 1.5, 0.25


def surely_until(asked: float, lease: float) -> float:
    """Return the monotonic time until which a lease is surely held.

    Args:
        asked: monotonic time before the database was asked for it.
        lease: its length in seconds.
    """
    return asked + lease - min(NOTICE, PART * lease)
