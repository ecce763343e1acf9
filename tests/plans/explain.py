"""What a statement really does: EXPLAIN ANALYZE of the prepared, generic plan, in numbers that a test can bound."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from django_leasequeue.engine import ConnectionExecutor, clock
from django_leasequeue.sql import statement

#: Tables that grow with the backlog: nothing may read one as a whole.
LARGE = re.compile(r"leasequeue_(job|ready|delayed|claim|deadletter|record|attempt|jobresult|leaseevent\w*)\Z")

_PARAMETER = re.compile(r"%\((\w+)\)s")


class Plan:
    def __init__(self, name: str, root: dict[str, Any]) -> None:
        self.name = name
        self.root = root

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
        found = []
        for node in self.nodes():
            table = node.get("Relation Name", "")
            if node["Node Type"] == "Seq Scan" and LARGE.match(table) and node["Actual Loops"]:
                found.append(table)
        return found

    @property
    def compared(self) -> int:
        """Pairs that joins tried in vain: what grows with the square of a batch."""
        return sum(round(node.get("Rows Removed by Join Filter", 0) * node["Actual Loops"]) for node in self.nodes())

    @property
    def blocks(self) -> int:
        return int(self.root["Shared Hit Blocks"] + self.root["Shared Read Blocks"])

    def table_rows(self) -> int:
        """Rows of the large tables that were looked at, through whichever index."""
        total = 0
        for node in self.nodes():
            if "Relation Name" in node and LARGE.match(node["Relation Name"]) and "Scan" in node["Node Type"]:
                given = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                total += round((given + node.get("Rows Removed by Index Recheck", 0)) * node["Actual Loops"])
        return total

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


class Explaining(ConnectionExecutor):
    """Runs operations for real, in the caller's transaction, and explains each statement just before it is run."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection)
        self.plans: list[Plan] = []

    def fetch(self, name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        given = {"now": clock.current(), "autocommit": False, **params}
        self.plans.append(explain(self.connection, name, given))
        return super().fetch(name, params)

    def plan(self, name: str, index: int = 0) -> Plan:
        """The plan of the n-th run of a statement."""
        return [plan for plan in self.plans if plan.name == name][index]


def prepare(connection: psycopg.Connection[Any], name: str) -> str:
    """Prepare a statement on the server under its own name, once a connection."""
    prepared = f"plan_{name}"
    row = connection.execute("SELECT FROM pg_prepared_statements WHERE name = %s", [prepared]).fetchone()
    if row is None:
        order = parameters(name)
        text = _PARAMETER.sub(lambda match: f"${order.index(match[1]) + 1}", statement(name))
        connection.execute(
            sql.SQL("PREPARE {} AS {}").format(sql.Identifier(prepared), sql.SQL(text.replace("%%", "%")))
        )
    return prepared


def parameters(name: str) -> list[str]:
    return list(dict.fromkeys(_PARAMETER.findall(statement(name))))


def explain(connection: psycopg.Connection[Any], name: str, params: Mapping[str, Any]) -> Plan:
    """Execute a prepared statement, take back what it did, and return its plan."""
    prepared = prepare(connection, name)
    values = sql.SQL(", ").join(sql.Literal(params[parameter]) for parameter in parameters(name))
    call = sql.SQL("({})").format(values) if parameters(name) else sql.SQL("")
    text = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE {} {}").format(
        sql.Identifier(prepared), call
    )
    found: Any = None
    with suppress(psycopg.Rollback), connection.transaction() as savepoint:
        found = psycopg.ClientCursor(connection).execute(text).fetchone()
        raise psycopg.Rollback(savepoint)
    return Plan(name, found[0][0]["Plan"])
