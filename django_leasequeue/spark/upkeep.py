"""What keeps a lake sound: one run at a time, and tables of silver that this version can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg

from ..exceptions import InvalidOption, LeaseQueueError
from ..sql import statement
from .database import resolve
from .layout import Lake
from .options import CONNECTION

#: Version of the columns of silver. A lake of an older one is computed anew from bronze.
SILVER = 4
#: Version of the tables of gold. A lake of another one gets them anew with the next run.
GOLD = 3


class RunInProgress(LeaseQueueError):
    """Another run of the same lake is not over; what it writes must not be written twice at once."""


@contextmanager
def only_run(lake: Lake, source: Mapping[str, str], consumer: str | None = None) -> Iterator[None]:
    """Hold the lock of a lake, and of the consumer that reads for it, by a connection that does nothing else.

    The lake bears the name under which it is locked, so another spelling of its path is the same lake.
    """
    place = {name: value for name, value in source.items() if name.lower() in CONNECTION}
    with resolve(place).connect() as connection:

        def lock(name: str) -> bool:
            cursor = psycopg.ClientCursor(connection).execute(statement("lake/run_lock"), {"name": name})
            row = cursor.fetchone()
            return row is not None and bool(row[0])

        if consumer is not None and not lock(consumer):
            raise RunInProgress(
                f"Another run of the consumer {consumer!r} is not over: wait for it, or give a second lake a"
                " consumer of its own (--consumer)."
            )
        known = lake.note("lake")
        if not lock("lake " + str(known.get("name", lake.root))):
            raise RunInProgress(
                f"Another command writes to the lake {lake.root}, or a run of another consumer: wait for it. A lake has"
                " one consumer; give a second one a path of its own (--lake)."
            )
        if known.get("format", lake.format) != lake.format:
            raise InvalidOption(
                f"The lake {lake.root} has tables in the format {known['format']!r}, not {lake.format!r}: set"
                " LEASEQUEUE['LAKE']['FORMAT'] to that, or give the lake another path."
            )
        if not known:
            lake.put_note("lake", {"name": lake.root, "format": lake.format})
        yield


def is_current(lake: Lake) -> bool:
    """Return whether silver has the columns of this version; if it is older, it is to be computed anew."""
    version = lake.note("schema").get("silver", 1)
    if version > SILVER:
        raise InvalidOption(
            f"The lake {lake.root} has silver tables of version {version}, this package knows {SILVER}: use the newer"
            " package, or another lake."
        )
    return bool(version == SILVER)


def note_current(lake: Lake) -> None:
    """Note that silver has the columns of this version."""
    lake.put_note("schema", {"silver": SILVER})
