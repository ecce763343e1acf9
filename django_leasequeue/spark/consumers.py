"""Named consumers of the lease log: their position in the database, seen by retention and by operators.

Imports no Django: streams report from Spark's processes. The tables are models/lake.py's.
"""

from __future__ import annotations

import re
from typing import Any

import psycopg

from ..exceptions import InvalidOption
from ..sql import statement
from .slices import Point

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")


def check_name(name: str) -> None:
    """Raise InvalidOption unless the text may name a consumer."""
    if not _NAME.fullmatch(name):
        raise InvalidOption(
            f"A consumer's name is 1 to 64 letters, digits and _.:- and begins with a letter or digit; it is {name!r}."
        )


def position(connection: psycopg.Connection[Any], name: str) -> Point | None:
    """Return where a consumer is, or None when it never reported."""
    row = psycopg.ClientCursor(connection).execute(statement("lake/consumer_position"), {"name": name}).fetchone()
    return None if row is None else Point(*row)


def report(connection: psycopg.Connection[Any], name: str, point: Point, horizon: int) -> bool:
    """Move a consumer to a point, and return whether retention had stopped waiting for it since the last report."""
    parameters = {"name": name, "txid": point.txid, "event": point.id, "horizon": horizon}
    row = psycopg.ClientCursor(connection).execute(statement("lake/consumer_report"), parameters).fetchone()
    return bool(row and row[0])


def forget(connection: psycopg.Connection[Any], name: str) -> bool:
    """Remove a consumer: retention waits for it no longer. Returns whether there was one."""
    cursor = psycopg.ClientCursor(connection).execute(statement("lake/consumer_forget"), {"name": name})
    return bool(cursor.rowcount)
