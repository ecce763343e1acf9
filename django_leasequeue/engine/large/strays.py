"""Objects in the storage that no row names: a failover, a restore or a truncated table has left them behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta

import psycopg
from django.core.files.storage import storages
from django.db import connections

from ... import conf
from ...exceptions import LargeStorageError
from .. import arrays, clock
from ..operation import Steps, operation
from ..pool import connect
from ..runner import ConnectionExecutor
from . import store

#: Objects that are compared with the tables, and removed, at a time.
BATCH = 5_000


def find() -> Iterator[list[str]]:
    """Yield the names of objects that no row of any PostgreSQL database of this site names, some at a time.

    Only days are looked at that have been over for a day: what is uploaded now has its row before.
    """
    alias = conf.settings.LARGE.STORAGE
    for day in _days(alias):
        names = _list(alias, day)[1]
        for start in range(0, len(names), BATCH):
            strays = [f"{day}/{name}" for name in names[start : start + BATCH]]
            for database in connections:
                if strays and connections[database].vendor == "postgresql":
                    strays = _unnamed_in(database, alias, strays)
            if strays:
                yield strays


def remove(names: Sequence[str]) -> int:
    """Remove objects from the storage; return how many are not there any more."""
    alias = conf.settings.LARGE.STORAGE
    return len(store.remove([(number, alias, name) for number, name in enumerate(names)]))


def _days(alias: str) -> Iterator[str]:
    until = clock.now().date() - timedelta(days=1)
    paths = [store.ROOT]
    for _ in ("year", "month", "day"):
        paths = [f"{path}/{name}" for path in paths for name in sorted(_list(alias, path)[0]) if name.isdecimal()]
    for path in paths:
        year, month, day = map(int, path.split("/")[-3:])
        if date(year, month, day) < until:
            yield path


def _list(alias: str, path: str) -> tuple[list[str], list[str]]:
    try:
        return storages[alias].listdir(path)
    except FileNotFoundError:
        return [], []
    except NotImplementedError as error:
        raise LargeStorageError(
            f"The storage {alias!r} cannot list its objects: look there yourself.", error
        ) from error
    except Exception as error:
        raise store.away_error(alias, "list its objects", error) from error


def _unnamed_in(database: str, alias: str, names: Sequence[str]) -> list[str]:
    try:
        with connect(database) as connection:
            found: list[str] = ConnectionExecutor(connection).run(_unnamed(alias, names))
            return found
    except psycopg.errors.UndefinedTable:  # this app has no tables there
        return list(names)


@operation
def _unnamed(alias: str, names: Sequence[str]) -> Steps[list[str]]:
    return [name for (name,) in (yield "verify_large", {"storage": alias, "names": arrays.texts(names)})]
