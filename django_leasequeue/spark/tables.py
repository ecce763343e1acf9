"""The tables that Spark can read: their columns, Spark's types and the SQL that gives each column.

Nothing here imports Django or pyspark: Spark's worker processes need this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..exceptions import InvalidOption

#: Spark's DDL word of a column type -> the words under which a schema may name it.
TYPES = ("bigint", "int", "smallint", "string", "timestamp", "binary")

EVENT_KINDS = {
    1: "enqueued",
    2: "claimed",
    3: "extended",
    4: "released",
    5: "acked",
    6: "failed",
    7: "expired",
    8: "dead_lettered",
    9: "redriven",
    10: "cancelled",
}
JOB_STATES = {0: "ready", 1: "delayed", 2: "leased", 3: "dead", 4: "record"}
RESULT_STATES = {1: "completed", 2: "failed", 3: "cancelled"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its Spark type and its SQL (over alias ``r`` of the table and ``q`` of the queue)."""

    type: str
    sql: str

    @property
    def joins_queue(self) -> bool:
        """Whether the column comes from the queue's row."""
        return self.sql.startswith("q.")


@dataclass(frozen=True, slots=True)
class Table:
    """A table under the name that the option ``table`` knows."""

    name: str
    relation: str
    #: Rows never change, and a transaction below the horizon adds none: no snapshot is needed to read it in parts.
    append_only: bool
    columns: Mapping[str, Column]

    def ddl(self) -> str:
        """Return the schema with every column, as Spark's DDL text."""
        return ", ".join(f"{name} {column.type}" for name, column in self.columns.items())

    def column(self, name: str) -> Column:
        """Return a column.

        Raises:
            InvalidOption: there is none of that name; the message lists what there is.
        """
        if name not in self.columns:
            raise InvalidOption(f"Table {self.name!r} has no column {name!r}; it has {', '.join(self.columns)}.")
        return self.columns[name]


def _words(column: str, words: Mapping[int, str]) -> str:
    cases = " ".join(f"WHEN {number} THEN '{word}'" for number, word in words.items())
    return f"CASE {column} {cases} END"


def _columns(**types: str) -> dict[str, Column]:
    return {name: Column(type_, f"r.{name}") for name, type_ in types.items()}


_QUEUE = {"queue": Column("string", "q.name"), "project": Column("string", "q.project")}

EVENTS = Table(
    "events",
    "leasequeue_leaseevent",
    append_only=True,
    columns={
        **_columns(id="bigint", txid="bigint", occurred_at="timestamp", queue_id="bigint"),
        **_QUEUE,
        **_columns(
            seq="bigint",
            claim="bigint",
            enqueued_at="timestamp",
            deadline="timestamp",
            deliveries="int",
            kind="smallint",
        ),
        "event": Column("string", _words("r.kind", EVENT_KINDS)),
        **_columns(node="string", name="string", detail="string"),
    },
)

JOBS = Table(
    "jobs",
    "leasequeue_job",
    append_only=False,
    columns={
        **_columns(seq="bigint", queue_id="bigint"),
        **_QUEUE,
        "state": Column("string", _words("r.state", JOB_STATES)),
        **_columns(
            position="bigint",
            rank="smallint",
            available_at="timestamp",
            expires_at="timestamp",
            claim="bigint",
            deadline="timestamp",
            created_at="timestamp",
            first_claimed_at="timestamp",
            claimed_at="timestamp",
            dead_at="timestamp",
            deliveries="int",
            max_deliveries="int",
            source_queue="bigint",
            source_seq="bigint",
            key="string",
            name="string",
            tag="string",
            node="string",
            origin="string",
            data="string",
            meta="string",
            errors="string",
            error_type="string",
            error="string",
            fingerprint="string",
        ),
        "body": Column("binary", "encode(r.body, 'hex')"),
    },
)

RESULTS = Table(
    "results",
    "leasequeue_jobresult",
    append_only=False,
    columns={
        **_columns(seq="bigint", queue_id="bigint"),
        **_QUEUE,
        "state": Column("string", _words("r.state", RESULT_STATES)),
        **_columns(
            created_at="timestamp",
            first_claimed_at="timestamp",
            claimed_at="timestamp",
            finished_at="timestamp",
            expires_at="timestamp",
            claim="bigint",
            deliveries="int",
            rank="smallint",
            key="string",
            name="string",
            tag="string",
            node="string",
            data="string",
            meta="string",
            result="string",
            errors="string",
            error_type="string",
            error="string",
            fingerprint="string",
        ),
        "body": Column("binary", "encode(r.body, 'hex')"),
        "result_body": Column("binary", "encode(r.result_body, 'hex')"),
    },
)

TABLES = {table.name: table for table in (EVENTS, JOBS, RESULTS)}


def table(name: str) -> Table:
    """Return a table by the name that users know.

    Raises:
        InvalidOption: there is none of that name.
    """
    if name not in TABLES:
        raise InvalidOption(f"Option 'table' must be one of {', '.join(TABLES)}; it is {name!r}.")
    return TABLES[name]
