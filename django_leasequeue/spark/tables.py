"""The tables that Spark can read: their columns, Spark's types and the SQL that gives each column.

Nothing here imports Django or pyspark: Spark's worker processes need this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..exceptions import InvalidOption

EVENT_KINDS = {
    1: "enqueued", 2: "claimed", 3: "extended", 4: "released", 5: "acked", 6: "failed",
    7: "expired", 8: "dead_lettered", 9: "redriven", 10: "cancelled", 11: "linked",
}  # fmt: skip
JOB_STATES = {0: "ready", 1: "delayed", 2: "leased", 3: "dead", 4: "record"}
RESULT_STATES = {1: "completed", 2: "failed", 3: "cancelled"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its Spark type and its SQL (alias ``r`` is the place, ``j`` the job, ``q`` the queue)."""

    type: str
    sql: str
    #: The SQL gives what a row of the log has of it; each job's is taken out of that (see :mod:`.arrow`).
    each: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A table whose pages are cut into slices, and the SQL of its rows: ``{source} p`` is it, ``{where}`` a slice."""

    relation: str
    sql: str = "(SELECT * FROM {source} p WHERE {where}) r"


@dataclass(frozen=True, slots=True)
class Table:
    """A table under the name that the option ``table`` knows; its rows stand in one or more places."""

    name: str
    places: tuple[Place, ...]
    #: Rows never change, and a transaction below the horizon adds none: no snapshot is needed to read it in parts.
    append_only: bool
    columns: Mapping[str, Column]

    @property
    def jobwise(self) -> bool:
        """Whether a row read is several rows told: one a job."""
        return any(column.each for column in self.columns.values())

    def ddl(self, *left_out: str) -> str:
        """Return the schema with every column but some, as Spark's DDL text."""
        return ", ".join(f"{name} {column.type}" for name, column in self.columns.items() if name not in left_out)

    def column(self, name: str) -> Column:
        if name not in self.columns:
            raise InvalidOption(f"Table {self.name!r} has no column {name!r}; it has {', '.join(self.columns)}.")
        return self.columns[name]


def _words(column: str, words: Mapping[int, str]) -> str:
    cases = " ".join(f"WHEN {number} THEN '{word}'" for number, word in words.items())
    return f"CASE {column} {cases} END"


def _columns(alias: str = "r", *, each: bool = False, **types: str) -> dict[str, Column]:
    return {name: Column(type_, f"{alias}.{name}", each) for name, type_ in types.items()}


_QUEUE = {"queue": Column("string", "q.name"), "project": Column("string", "q.project")}
_LOG = (Place("leasequeue_leaseevent"),)
_KIND = {"kind": Column("smallint", "r.kind"), "event": Column("string", _words("r.kind", EVENT_KINDS))}
_BY = _columns(node="string", name="string")
_EVENT = _columns(txid="bigint", occurred_at="timestamp", queue_id="bigint") | _QUEUE
#: The lease log, one row a job.
EVENTS = Table(
    "events",
    _LOG,
    append_only=True,
    columns={
        **_columns(id="bigint", each=True),
        **_EVENT,
        **_columns(seq="bigint", each=True),
        **_columns(claim="bigint", deadline="timestamp"),
        **_columns(deliveries="int", waited="int", ran="int", each=True),
        **_KIND,
        **_BY,
        **_columns(detail="string", each=True),
    },
)

#: The lease log as it is stored.
BATCHES = Table(
    "events",
    _LOG,
    append_only=True,
    columns={
        **_columns(id="bigint"),
        **_EVENT,
        **_columns(claim="bigint", deadline="timestamp", low="bigint", high="bigint"),
        **_KIND,
        **_BY,
        **_columns(seqs="array<bigint>", deliveries="array<int>", waited="array<int>", ran="array<int>"),
        **_columns(detail="string"),
    },
)

# By the key of the job, row by row: what that costs depends on what is read, never on statistics or on other slices.
_JOB = "CROSS JOIN LATERAL (SELECT * FROM leasequeue_job WHERE seq = r.seq OFFSET 0) j"
_ENQUEUED = _columns("j", rank="smallint", key="string", name="string", tag="string", data="string", meta="string")
_ENQUEUED |= _columns("j", created_at="timestamp")
_BODY = {"body": Column("binary", "encode(j.body, 'hex')")}
_FIRST = {"first_claimed_at": Column("timestamp", "COALESCE(j.first_claimed_at, r.claimed_at)")}


def _place(relation: str, state: int, **sql: str) -> Place:
    """A place of jobs: what its rows say, nulls elsewhere."""
    kinds = {
        "seq": "", "queue_id": "", "position": "::bigint", "available_at": "::timestamptz",
        "expires_at": "::timestamptz", "claim": "::bigint", "node": "::text", "deadline": "::timestamptz",
        "claimed_at": "::timestamptz", "dead_at": "::timestamptz", "deliveries": "::int", "flags": "::int",
    }  # fmt: skip
    told = ", ".join(f"{sql.get(name, 'NULL' + kind)} AS {name}" for name, kind in kinds.items())
    join, only = sql.get("join", ""), sql.get("only", "")
    rows = f"SELECT {told}, {state} AS state FROM {{source}} p{join} WHERE {{where}}{only}"  # nosec  # B608: of constants
    return Place(relation, f"({rows}) r {_JOB}")


_STANDS = {name: f"p.{name}" for name in ("seq", "queue_id", "expires_at", "deliveries")}
#: Jobs that may be dead letters that were moved, and those that may have failed attempts.
_LETTER, _FAILED = 4, 8
_DEAD = {**_STANDS, "flags": str(_LETTER | _FAILED)}
_ERRORS = "leasequeue_errors(r.seq)::text END"
_TRIED = "EXISTS (SELECT FROM leasequeue_attempt a WHERE a.seq = r.seq)"


def _of_letter(column: str, attempt: str) -> str:
    """Return what a dead letter, also one that was moved, says of its failure; else the newest attempt."""
    return (
        f"CASE WHEN r.flags & {_LETTER | _FAILED} <> 0 THEN COALESCE("  # nosec  # B608: of constants
        f"(SELECT d.{column} FROM leasequeue_deadletter d WHERE d.seq = r.seq),"
        f" (SELECT a.{attempt} FROM leasequeue_attempt a WHERE a.seq = r.seq ORDER BY a.id DESC LIMIT 1)) END"
    )


#: Jobs that have not ended, and records of logs: each stands in one of these places.
JOBS = Table(
    "jobs",
    (
        _place("leasequeue_ready", 0, **_STANDS, position="p.position", flags="p.flags"),
        _place("leasequeue_delayed", 1, **_STANDS, available_at="p.available_at", flags="p.flags"),
        _place(
            "leasequeue_claim",
            2,
            join=" CROSS JOIN LATERAL ROWS FROM (unnest(p.seqs), unnest(p.deliveries)) AS u(seq, deliveries)",
            **{name: f"p.{name}" for name in ("queue_id", "node", "deadline", "flags")},
            seq="u.seq",
            claim="p.token",
            claimed_at="p.created_at",
            expires_at="p.deadline + p.grace_ms * interval '1 ms'",
            deliveries="COALESCE(u.deliveries, 1)",
        ),
        _place("leasequeue_deadletter", 3, **_DEAD, dead_at="p.dead_at", only=" AND p.in_place"),
        _place("leasequeue_record", 4, **{**_DEAD, "deliveries": "0"}),
    ),
    append_only=False,
    columns={
        **_columns(seq="bigint", queue_id="bigint"),
        **_QUEUE,
        "state": Column("string", _words("r.state", JOB_STATES)),
        "position": Column("bigint", "COALESCE(r.position, j.position, j.seq)"),
        **_columns(available_at="timestamp"),
        "expires_at": Column(
            "timestamp",
            "CASE WHEN r.state <> 2 THEN r.expires_at"  # a live claim protects a message
            " WHEN j.expires_at IS NOT NULL THEN GREATEST(j.expires_at, r.expires_at) END",
        ),
        **_columns(claim="bigint", node="string", deadline="timestamp", claimed_at="timestamp", deliveries="int"),
        **_FIRST,
        "dead_at": Column(
            "timestamp",
            f"CASE WHEN r.flags & {_LETTER} <> 0 THEN"  # nosec  # B608: of constants
            " COALESCE(r.dead_at, (SELECT d.dead_at FROM leasequeue_deadletter d WHERE d.seq = r.seq)) END",
        ),
        **_ENQUEUED,
        **_columns("j", max_deliveries="int", source_queue="bigint", source_seq="bigint", origin="string"),
        "errors": Column("string", f"CASE WHEN r.flags & {_FAILED} <> 0 THEN {_ERRORS}"),
        "error_type": Column("string", _of_letter("error_type", "error_type")),
        "error": Column("string", _of_letter("error", "message")),
        "fingerprint": Column("string", _of_letter("fingerprint", "fingerprint")),
        **_BODY,
    },
)

#: Jobs that ended and are remembered.
RESULTS = Table(
    "results",
    (Place("leasequeue_jobresult", f"(SELECT * FROM {{source}} p WHERE {{where}}) r {_JOB}"),),  # nosec  # B608: of constants
    append_only=False,
    columns={
        **_columns(seq="bigint", queue_id="bigint"),
        **_QUEUE,
        "state": Column("string", _words("r.state", RESULT_STATES)),
        **_columns(claimed_at="timestamp", finished_at="timestamp", expires_at="timestamp", claim="bigint"),
        **_columns(deliveries="int", node="string", result="string"),
        **_FIRST,
        **_ENQUEUED,
        "errors": Column("string", f"CASE WHEN {_TRIED} THEN {_ERRORS}"),
        **_columns(error_type="string", error="string", fingerprint="string"),
        **_BODY,
        "result_body": Column("binary", "encode(r.result_body, 'hex')"),
    },
)

TABLES = {table.name: table for table in (EVENTS, JOBS, RESULTS)}


def table(name: str, *, batches: bool = False) -> Table:
    """Return a table by the name that users know."""
    if name not in TABLES:
        raise InvalidOption(f"Option 'table' must be one of {', '.join(TABLES)}; it is {name!r}.")
    if batches and name != EVENTS.name:
        raise InvalidOption("Only the table 'events' is stored in batches.")
    return BATCHES if batches else TABLES[name]
