"""The warning about a restored database whose epoch has not begun. Spark's streams give it too, without Django."""

from __future__ import annotations

#: Rows of the lease log that are counted.
COUNTED = 100_000
#: The command that begins an epoch.
COMMAND = "manage.py leasequeue_restored"


def waiting_text(above: int) -> str:
    """Return what is wrong, and what to do; ``above``: rows of the log above the horizon."""
    count = f"more than {COUNTED:,}" if above >= COUNTED else f"{above:,}"
    return (
        f"This database was restored from a copy, and {count} rows of the lease log lie above the horizon: readers wait"
        f" for them. Run '{COMMAND}' as the owner of the tables, or start a worker of that role."
    )
