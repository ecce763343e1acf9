"""Runs statements under every state that a planner can be in, and counts the pages that they touch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from django_leasequeue.engine.pool import connect, connection_parameters
from django_leasequeue.engine.runner import fetch_steadily
from django_leasequeue.sql import statement

from .filling import NOW, fill

_PARAMETER = re.compile(r"%\((\w+)\)s")

#: Runs that a connection needs until it keeps a plan: two until psycopg prepares, five that PostgreSQL plans anew.
RUNS = 8


@dataclass(frozen=True)
class Case:
    """One statement with standard parameters. ``asked``: how many rows, jobs, queues it is asked for."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    asked: int = 0


@dataclass(frozen=True)
class Measure:
    """What one run touched."""

    case: Case
    regime: str
    rows: int = 0
    pages: int = 0
    where: str = ""
    error: str = ""


#: What the planner is told, by name: of full tables, of tables that were full and are empty, of tables that were empty all along
#: (one page, nobody's figures), nothing at all.
_TABLES = "c.relname LIKE 'leasequeue\\_%' AND c.relkind IN ('r', 'i')"
STATISTICS: dict[str, tuple[str, ...]] = {
    "full": (),
    "emptied": (f"UPDATE pg_class c SET reltuples = 0, relpages = GREATEST(relpages, 1) WHERE {_TABLES}",),
    "empty": (
        f"DELETE FROM pg_statistic s USING pg_class c WHERE s.starelid = c.oid AND {_TABLES}",
        f"UPDATE pg_class c SET reltuples = 0, relpages = 1 WHERE {_TABLES}",
    ),
    "none": (
        f"DELETE FROM pg_statistic s USING pg_class c WHERE s.starelid = c.oid AND {_TABLES}",
        f"UPDATE pg_class c SET reltuples = -1, relpages = 0 WHERE {_TABLES}",
    ),
}

#: How a host's connection plans. ``generic`` is what a statement gets that is run often, ``custom`` what is run seldom.
HOST = {
    "generic": "SET LOCAL plan_cache_mode = force_generic_plan",
    "custom": "SET LOCAL plan_cache_mode = force_custom_plan",
}


def host_connection() -> psycopg.Connection[Any]:
    """A connection as Django's is."""
    connection = psycopg.connect(**connection_parameters("default"), autocommit=True, prepare_threshold=2)
    # Compiling what a planner takes for expensive would only make the test slow.
    connection.execute("SET jit = off")
    return connection


class Meter:
    """Runs cases on one connection."""

    def __init__(self, connection: psycopg.Connection[Any], *, host: bool) -> None:
        self.connection = connection
        self.host = host
        found = connection.execute(
            "SELECT c.oid, c.relname FROM pg_class c LEFT JOIN pg_class o ON o.reltoastrelid = c.oid"
            " WHERE (c.relname LIKE 'leasequeue%' OR o.relname LIKE 'leasequeue%') AND c.relkind IN ('r', 'i', 't')"
        ).fetchall()
        self._names = dict(found)
        self._oids = list(self._names)

    def pages(self) -> dict[int, int]:
        rows = self.connection.execute(
            "SELECT o, pg_stat_get_xact_blocks_fetched(o::oid) FROM unnest(%s::bigint[]) AS o", [self._oids]
        )
        return dict(rows.fetchall())

    def run(self, case: Case) -> list[tuple[Any, ...]]:
        params = {**dict.fromkeys(_PARAMETER.findall(statement(case.name))), "now": NOW, "autocommit": False, **case.params}
        with psycopg.Cursor(self.connection) as cursor:
            if self.host:
                return fetch_steadily(cursor, case.name, params)
            cursor.execute(statement(case.name), params, binary=True)
            return cursor.fetchall() if cursor.description else []

    def measure(self, case: Case, regime: str) -> Measure:
        """Run a case and take back what it did."""
        result = Measure(case, regime)
        try:
            with suppress(psycopg.Rollback), self.connection.transaction() as savepoint:
                before = self.pages()
                rows = len(self.run(case))
                touched = {oid: now - before[oid] for oid, now in self.pages().items() if now != before[oid]}
                where = sorted(touched.items(), key=lambda item: -item[1])[:4]
                text = ", ".join(f"{self._names[oid].removeprefix('leasequeue_')} {count}" for oid, count in where)
                result = Measure(case, regime, rows, sum(touched.values()), text)
                raise psycopg.Rollback(savepoint)
        except psycopg.Error as error:
            result = Measure(case, regime, error=str(error))
        return result


@contextmanager
def early_meters(cases: Iterable[Case]) -> Iterator[dict[str, Meter]]:
    """Connections that have made their plans while the tables were empty."""
    with connect("default") as own, host_connection() as host:
        meters = {"own, kept": Meter(own, host=False), "host, kept": Meter(host, host=True)}
        for meter in meters.values():
            for case in cases:
                for _ in range(RUNS):
                    if meter.measure(case, "").error:
                        break
        yield meters


def measure_all(cases: list[Case]) -> Iterator[Measure]:
    """Fill the empty tables and run every case under every regime.

    The plans that are kept come first: an analyze would end them.
    """
    with connect("default") as filler:
        filler.execute("VACUUM (ANALYZE)")
        with early_meters(cases) as meters:
            fill(filler)
            for regime, meter in meters.items():
                for case in cases:
                    yield meter.measure(case, regime)
        filler.execute("VACUUM (ANALYZE)")
    with connect("default") as own, host_connection() as host:
        ways = {"own": (Meter(own, host=False), "SELECT")}
        ways |= {f"host, {name}": (Meter(host, host=True), setting) for name, setting in HOST.items()}
        for statistics, changes in STATISTICS.items():
            for way, (meter, setting) in ways.items():
                with meter.connection.transaction(force_rollback=True):
                    for change in (*changes, setting):
                        meter.connection.execute(change)
                    for case in cases:
                        yield meter.measure(case, f"{way}, {statistics}")
