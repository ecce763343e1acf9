"""What statements really do, in numbers that a test can bound.

EXPLAIN ANALYZE of the prepared, generic plan; the pages that are touched under every state that a planner can be in.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import psycopg
from psycopg import sql

from django_leasequeue.engine import ConnectionExecutor, clock, exchange
from django_leasequeue.engine.django_executor import STEADY, in_settings
from django_leasequeue.engine.pool import connect, connection_parameters
from django_leasequeue.engine.runner import command_of, stands_alone
from django_leasequeue.sql import keeps_host_settings, paths, statement

from .filling import BATCH, NOW, fill, fill_queues

#: Tables that grow with the backlog: nothing may read one as a whole.
LARGE = re.compile(r"leasequeue_(job|ready|delayed|claim|deadletter|record|attempt|jobresult|leaseevent\w*)\Z")

#: Jobs of a call, whose plans are looked at.
SIZES = [1, BATCH, 1_000]

_PARAMETER = re.compile(r"%\((\w+)\)s")


@dataclass
class Plan:
    name: str
    root: dict[str, Any]

    def nodes(self, node: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        node = node or self.root
        yield node
        for child in node.get("Plans", ()):
            yield from self.nodes(child)

    @property
    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.nodes() if "Index Name" in node and node["Actual Loops"]}

    @property
    def whole_tables(self) -> list[str]:
        """Large tables that are scanned from end to end."""
        scans = [node for node in self.nodes() if node["Node Type"] == "Seq Scan" and node["Actual Loops"]]
        return [node["Relation Name"] for node in scans if LARGE.match(node["Relation Name"])]

    @property
    def compared(self) -> int:
        """Pairs that joins, or looks through a part of the statement, tried in vain: what grows as a batch squared."""
        pairs = 0
        for node in self.nodes():
            in_vain = node.get("Rows Removed by Join Filter", 0)
            if node["Node Type"] == "CTE Scan" and node["Actual Loops"] > 1:
                in_vain += node.get("Rows Removed by Filter", 0)
            pairs += round(in_vain * node["Actual Loops"])
        return pairs

    @property
    def blocks(self) -> int:
        return int(self.root["Shared Hit Blocks"] + self.root["Shared Read Blocks"])

    def table_rows(self) -> int:
        """Rows of the large tables that were looked at, through whichever index."""
        given = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
        return sum(
            round(sum(node.get(key, 0) for key in given) * node["Actual Loops"])
            for node in self.nodes()
            if LARGE.match(node.get("Relation Name", "")) and "Scan" in node["Node Type"]
        )

    def text(self, node: dict[str, Any] | None = None, depth: int = 0) -> str:
        """The plan as lines, for the message of a failure."""
        node = node or self.root
        where = node.get("Index Name") or node.get("Relation Name") or node.get("CTE Name") or ""
        numbers = {
            key: node[key]
            for key in ("Actual Rows", "Actual Loops", "Rows Removed by Filter", "Rows Removed by Join Filter")
            if node.get(key)
        }
        lines = [f"{'  ' * depth}{node['Node Type']} {where} {numbers}"]
        lines += [self.text(child, depth + 1) for child in node.get("Plans", ())]
        return "\n".join(lines)


def check(plans: list[Plan], size: int) -> None:
    """No large table as a whole; pairs that a join tries in vain grow with the batch, not with its square."""
    for plan in plans:
        assert plan.whole_tables == [], plan.text()
        assert plan.compared <= 10 * size + 1_000, plan.text()


class Explaining(ConnectionExecutor):
    """Runs operations for real, in the caller's transaction, and explains each statement just before it is run."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection)
        self.plans: list[Plan] = []

    def fetch(self, name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        given = {"now": clock.current(), "autocommit": False, "alone": False, **params}
        self.plans.append(explain(self.connection, name, given))
        return super().fetch(name, params)

    def plan(self, name: str, index: int = 0) -> Plan:
        """The plan of the n-th run of a statement."""
        return [plan for plan in self.plans if plan.name == name][index]


def prepare(connection: psycopg.Connection[Any], name: str) -> None:
    prepared = f"plan_{name}"
    row = connection.execute("SELECT FROM pg_prepared_statements WHERE name = %s", [prepared]).fetchone()
    if row is None:
        order = parameters(name)
        text = _PARAMETER.sub(lambda match: f"${order.index(match[1]) + 1}", statement(name))
        connection.execute(
            sql.SQL("PREPARE {} AS {}").format(sql.Identifier(prepared), sql.SQL(text.replace("%%", "%")))
        )


def parameters(name: str) -> list[str]:
    return list(dict.fromkeys(_PARAMETER.findall(statement(name))))


def execution(how: str, name: str, params: Mapping[str, Any]) -> sql.Composed:
    """Execute a prepared statement, or explain that."""
    values = sql.SQL(", ").join(sql.Literal(params[parameter]) for parameter in parameters(name))
    given = sql.SQL("({})").format(values) if parameters(name) else sql.SQL("")
    return sql.SQL("{} EXECUTE {} {}").format(sql.SQL(how), sql.Identifier(f"plan_{name}"), given)


def explain(connection: psycopg.Connection[Any], name: str, params: Mapping[str, Any]) -> Plan:
    """Execute a prepared statement, take back what it did, and return its plan."""
    prepare(connection, name)
    text = execution("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)", name, params)
    found: Any = None
    with suppress(psycopg.Rollback), connection.transaction() as savepoint:
        found = psycopg.ClientCursor(connection).execute(text).fetchone()
        raise psycopg.Rollback(savepoint)
    return Plan(name, found[0][0]["Plan"])


@dataclass(frozen=True)
class Case:
    """One statement with its parameters (others: None, no project). ``asked``: how many rows, jobs or queues for."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    asked: int = 0
    #: Whether it is run as ``plans`` and the lake set the planner: the log's BRIN indexes need bitmaps.
    log: bool = False


@dataclass(frozen=True)
class Measure:
    case: Case
    regime: str
    rows: int = 0
    pages: int = 0
    where: str = ""
    error: str = ""


_OURS = "c.relname LIKE 'leasequeue%'"
_FORGOTTEN = (
    f"DELETE FROM pg_statistic s USING pg_class c WHERE s.starelid = c.oid AND {_OURS} AND c.relkind IN ('r', 'i')"
)
_COUNTED = f"UPDATE pg_class c SET reltuples = {{}}, relpages = {{}} WHERE {_OURS} AND c.relkind = '{{}}'"

#: What the planner is told, by name. ``emptied``: of full tables, when vacuum found them empty and cut them off
#: (indexes are not cut off); ``hollow``: the same, but they could not be cut off; ``empty``: of new tables that vacuum
#: has seen.
STATISTICS: dict[str, tuple[str, ...]] = {
    "full": (),
    "emptied": (_COUNTED.format(0, 0, "r"), _COUNTED.format(0, "GREATEST(relpages, 1)", "i")),
    "hollow": (_COUNTED.format(0, "relpages", "r"), _COUNTED.format(0, "GREATEST(relpages, 1)", "i")),
    "empty": (_FORGOTTEN, _COUNTED.format(0, 0, "r"), _COUNTED.format(0, 1, "i")),
    "none": (_FORGOTTEN, _COUNTED.format(-1, 0, "r"), _COUNTED.format(-1, 0, "i")),
}

#: How a host's connection plans. ``generic`` is what a statement gets that is run often, ``custom`` what is run seldom.
HOST = {
    "generic": "SET LOCAL plan_cache_mode = force_generic_plan",
    "custom": "SET LOCAL plan_cache_mode = force_custom_plan",
}

#: Folders of statements that no connection of a host carries.
OWN = ("worker", "reaper")

#: What the readers of the log set.
LOG = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = on"


def host_connection() -> psycopg.Connection[Any]:
    connection = psycopg.connect(**connection_parameters("default"), autocommit=True, prepare_threshold=None)
    # Compiling what a planner takes for expensive would only make the test slow.
    connection.execute("SET jit = off")
    return connection


class Meter:
    def __init__(self, connection: psycopg.Connection[Any], *, host: bool, bound: bool = False) -> None:
        self.connection = connection
        self.host = host
        #: Whether values are literals of the statement, as Django's cursor writes them.
        self.bound = bound
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

    def _params(self, case: Case) -> dict[str, Any]:
        given = {"now": NOW, "autocommit": False, "alone": False, "project": ""}
        return {**dict.fromkeys(parameters(case.name)), **given, **case.params}

    def run(self, case: Case) -> list[tuple[Any, ...]]:
        if self.host and not case.name.startswith("lake/"):
            params = self._params(case)
            if not self.bound:
                alone = stands_alone(self.connection)
                commands = in_settings(case.name, command_of(case.name, params, False, alone), alone)
                found = exchange.fetch(self.connection, commands, len(commands) // 2, exchange.NEVER)
                assert found is not None
                return found
            if not keeps_host_settings(case.name):
                self.connection.execute(STEADY.outside.text)
            bound = psycopg.ClientCursor(self.connection).execute(statement(case.name), params)
            return bound.fetchall() if bound.description else []
        with psycopg.Cursor(self.connection) as cursor:
            cursor.execute(statement(case.name), self._params(case), binary=True)
            return cursor.fetchall() if cursor.description else []

    def measure(self, case: Case, regime: str) -> Measure:
        """Run a case and take back what it did."""
        result = Measure(case, regime)
        try:
            with suppress(psycopg.Rollback), self.connection.transaction() as savepoint:
                if case.log:
                    self.connection.execute(LOG, prepare=False)
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


class Keeper(Meter):
    """Runs cases by the plans that it made when the tables were empty."""

    def plan(self, case: Case) -> None:
        """Make and keep a plan, as a connection does that has run the statement some times. It is not run."""
        # What cannot be planned cannot be run either: measuring it tells.
        with suppress(psycopg.Error), self.connection.transaction():
            prepare(self.connection, case.name)
            self._execute("EXPLAIN", case)

    def run(self, case: Case) -> list[tuple[Any, ...]]:
        return self._execute("", case)

    def _execute(self, how: str, case: Case) -> list[tuple[Any, ...]]:
        if self.host and not keeps_host_settings(case.name):
            # Also when it is run: what came between (autovacuum) may have ended the plan that was kept.
            self.connection.execute(STEADY.outside.text)
        if case.log:
            self.connection.execute(LOG, prepare=False)
        text = execution(how, case.name, self._params(case))
        cursor = psycopg.ClientCursor(self.connection).execute(text)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def keepers(cases: Iterable[Case]) -> Iterator[dict[str, Keeper]]:
    """Connections that make their plans now."""
    with connect("default") as own, host_connection() as host:
        host.execute("SET plan_cache_mode = force_generic_plan")
        # Else psycopg deallocates everything at a rollback.
        own.prepare_threshold = None
        found = {"own, kept": Keeper(own, host=False), "host, kept": Keeper(host, host=True)}
        for keeper in found.values():
            for case in cases:
                keeper.plan(case)
        yield found


def measure_all(cases: list[Case], statistics: Iterable[str], *, kept: bool) -> Iterator[Measure]:
    """Fill the empty tables and run every case under these regimes, kept plans first: an analyze would end them."""
    with connect("default") as filler:
        fill_queues(filler)
        filler.execute("VACUUM (ANALYZE)")
        with keepers(cases if kept else []) as found:
            fill(filler)
            for regime, keeper in found.items():
                for case in cases if kept else []:
                    yield keeper.measure(case, regime)
        filler.execute("VACUUM (ANALYZE)")
    with connect("default") as filler, connect("default") as own, host_connection() as host:
        ways = {"own": (Meter(own, host=False), "SELECT")}
        ways |= {f"host, {name}": (Meter(host, host=True), setting) for name, setting in HOST.items()}
        # The last: each run leaves dead rows behind, and these plans may read more of them.
        bound = {"host, bound": (Meter(host, host=True, bound=True), HOST["custom"])}
        for some, name in product((ways, bound), statistics):
            for way, (meter, setting) in some.items():
                with meter.connection.transaction(force_rollback=True):
                    for change in (*STATISTICS[name], setting):
                        meter.connection.execute(change)
                    for case in cases:
                        if way == "host, bound" and paths()[case.name].parent.name in OWN:
                            continue
                        if way != "host, custom" or keeps_host_settings(case.name):
                            yield meter.measure(case, f"{way}, {name}")
                # What was taken back left pages behind of which the indexes of the log know nothing.
                filler.execute("VACUUM leasequeue_leaseevent")
