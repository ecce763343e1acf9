"""Indexes for searches by the payload, which an operator switches on: made, listed, dropped, and asked for jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import Connection, sql

from ..exceptions import InvalidOption
from ..sql import statement
from . import codec
from .dead.filter import PayloadTest
from .limits import check_text
from .operation import Statements, operation

#: What the names of the indexes begin with, how many there may be, and the jobs that a search takes from one.
_PREFIX, MAX_INDEXES, MAX_FOUND = "leasequeue_find_", 20, 10_000


class SearchIndex(NamedTuple):
    """An index for searches. ``path`` is ``None`` where its build did not end; ``scans``: how often it was used."""

    name: str
    path: str | None
    valid: bool
    bytes: int
    scans: int


def parse(path: str) -> tuple[str, ...]:
    """Return the names of a path: ``data.kwargs.order``, ``meta.source``, or ``data`` for all that is in it."""
    names = tuple(check_text(path, "the path", 500).split("."))
    if names[0] not in ("data", "meta") or not all(names):
        raise InvalidOption(f"the path is data or meta, and names behind it: data.kwargs.order; it is {path[:80]!r}.")
    return names


def name_of(path: str) -> str:
    """Return the name of the index of a path."""
    return _PREFIX + hashlib.sha256(path.encode()).hexdigest()[:16]


def _expression(names: Sequence[str]) -> sql.Composable:
    """Return what is indexed: exactly what lookups of the models compare."""
    root, *keys = names
    document = sql.SQL("leasequeue_jsonb({})").format(sql.Identifier(root))
    if len(keys) == 1:  # as Django says it: a number is a place in a list
        key = int(keys[0]) if keys[0].isdecimal() else keys[0]
        return sql.SQL("({} -> {})").format(document, sql.Literal(key))
    return sql.SQL("({} #> {}::text[])").format(document, sql.Literal(keys)) if keys else document


def _ddl(connection: Connection[Any], name: str, **parts: sql.Composable) -> None:
    connection.execute(sql.SQL(statement(f"ddl/{name}")).format(**parts))


def make(connection: Connection[Any], path: str) -> None:
    """Make the index of a path, on a connection in autocommit mode; what is left of a build that failed goes first.

    The one of a path is a hash (equality, whatever its length), the one of all of ``data`` a GIN (containment).
    """
    names, index = parse(path), sql.Identifier(name_of(path))
    _ddl(connection, "search_index_drop", index=index)
    method, operators = ("hash", "") if len(names) > 1 else ("gin", " jsonb_path_ops")
    expression = _expression(names) + sql.SQL(operators)
    _ddl(connection, "search_index_make", index=index, method=sql.SQL(method), expression=expression)
    _ddl(connection, "search_index_name", index=index, path=sql.Literal(path))
    connection.execute("ANALYZE leasequeue_job")


def drop(connection: Connection[Any], index: SearchIndex) -> None:
    """Drop an index, on a connection in autocommit mode."""
    _ddl(connection, "search_index_drop", index=sql.Identifier(index.name))


@operation
def search_indexes() -> Statements[list[SearchIndex]]:
    """Return the indexes for searches, by their paths."""
    return [SearchIndex._make(row) for row in (yield "search_indexes", {})]


def question(tests: Sequence[PayloadTest], paths: Sequence[str]) -> sql.Composed | None:
    """Return the statement that asks an index for at most ``MAX_FOUND`` + 1 candidates; ``None``: no test has one."""
    for test in tests:
        if test.equal and (condition := _condition(test, paths)) is not None:
            values = [test.as_json, *([] if test.word is None else [codec.dumps(test.word)])]
            found = [
                sql.SQL("(SELECT seq FROM leasequeue_job WHERE {} LIMIT {})").format(
                    condition(value), sql.Literal(MAX_FOUND + 1)
                )
                for value in dict.fromkeys(values)
            ]
            return sql.SQL(" UNION ").join(found)
    return None


def _condition(test: PayloadTest, paths: Sequence[str]) -> Any:
    """Return what makes the condition of a value (JSON) that an index answers; ``None``: none does."""
    if test.root == "tags":
        return _contains("leasequeue_tags(meta)", test.path) if len(test.path) == 1 else None
    names = (test.root, *test.place)
    if ".".join(names) in paths:
        return lambda value: sql.SQL("{} = {}::jsonb").format(_expression(names), sql.Literal(value))
    if test.root in paths and not any(name.isdecimal() for name in test.path):
        return _contains(f"leasequeue_jsonb({test.root})", test.path)
    return None


def _contains(document: str, path: Sequence[str]) -> Any:
    def condition(value: str) -> sql.Composed:
        for name in reversed(path):
            value = f"{{{codec.dumps(name)}: {value}}}"
        return sql.SQL("{} @> {}::jsonb").format(sql.SQL(document), sql.Literal(value))

    return condition
