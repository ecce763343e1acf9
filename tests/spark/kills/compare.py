"""The lake against the log, by means of their own: the table's or Spark's list of files, plain SQL, DuckDB."""

import json
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

import duckdb
import psycopg
from deltalake import DeltaTable

#: Each event as the log has it, in microseconds: a row of the log is an event of each of its jobs, in their order.
_LOG = """
COPY (
    SELECT e.id * 1024 + place - 1, e.txid, (extract(epoch FROM e.occurred_at) * 1000000)::bigint, e.queue_id,
        e.seqs[place], e.claim, (extract(epoch FROM e.deadline) * 1000000)::bigint,
        CASE WHEN e.kind IN (1, 9, 11) THEN NULL WHEN e.deliveries IS NULL THEN 1 ELSE e.deliveries[place] END,
        e.waited[place], e.ran[place], e.kind, e.node, e.name, e.detail
    FROM leasequeue_leaseevent e, generate_series(1, cardinality(e.seqs)) place
) TO STDOUT WITH (FORMAT csv, NULL '\\N')
"""
#: The same of bronze, which has the rows of the log.
_BRONZE = """
CREATE TABLE bronze AS
SELECT id * 1024 + place - 1 AS id, txid, epoch_us(occurred_at) AS occurred_at, queue_id, seqs[place] AS seq, claim,
    epoch_us(deadline) AS deadline,
    CASE WHEN kind IN (1, 9, 11) THEN NULL WHEN deliveries IS NULL THEN 1 ELSE deliveries[place] END AS deliveries,
    waited[place] AS waited, ran[place] AS ran, kind, node, name, detail
FROM (SELECT *, unnest(range(1, len(seqs) + 1)) AS place FROM read_parquet(?))
"""
_COLUMNS = {
    **dict.fromkeys(["id", "txid", "occurred_at", "queue_id", "seq", "claim", "deadline"], "BIGINT"),
    **dict.fromkeys(["deliveries", "waited", "ran"], "INTEGER"),
    "kind": "SMALLINT",
    **dict.fromkeys(["node", "name", "detail"], "VARCHAR"),
}
#: The state of a job in silver that its last event tells, others left out.
_JOBS = """
WITH told AS (
    SELECT seq, arg_max(kind, id) AS last FROM log WHERE kind NOT IN (3, 4, 7) GROUP BY seq
), expected AS (
    SELECT seq, CASE last WHEN 5 THEN 'completed' WHEN 6 THEN 'failed' WHEN 8 THEN 'dead' WHEN 10 THEN 'cancelled'
        ELSE 'open' END AS state FROM told
)
SELECT (SELECT count(*) FROM (FROM expected EXCEPT ALL SELECT seq, state FROM jobs)),
    (SELECT count(*) FROM (SELECT seq, state FROM jobs EXCEPT ALL FROM expected))
"""


class Compared(NamedTuple):
    """The lake compared with the log: numbers of events, and of jobs in silver that are not as they should be."""

    in_log: int
    in_lake: int
    missing: int
    twice: int
    #: In the lake as the log does not have them.
    other: int
    jobs: int
    wrong_jobs: int
    #: Files that killed drivers left and that Spark's list does not name.
    left: int

    @property
    def good(self) -> bool:
        """Whether the lake has every event once, as it is in the log, and silver every job as it ended."""
        return self.in_log > 0 and not (self.missing or self.twice or self.other or self.wrong_jobs)


def compare(lake: Path, url: str, scratch: Path) -> Compared:
    """Compare bronze and silver with the log, row by row and column by column; nobody may write events meanwhile."""
    copied = scratch / "log.csv"
    with psycopg.connect(url) as connection, copied.open("wb") as file:
        with connection.cursor().copy(_LOG) as copy:
            for piece in copy:
                file.write(piece)
    plain = lake / "bronze" / "events"
    if plain.exists():
        named, jobs = listed(plain), [str(name) for name in (lake / "silver/jobs").glob("*/*.parquet")]
    else:
        named, jobs = (DeltaTable(lake / name).file_uris() for name in ("bronze/log", "silver/jobs"))
    with duckdb.connect() as database:
        database.execute(
            "CREATE TABLE log AS SELECT * FROM read_csv(?, header = false, columns = ?, nullstr = '\\N',"
            " allow_quoted_nulls = false)",
            [str(copied), _COLUMNS],
        )
        database.execute(_BRONZE, [named])
        database.execute("CREATE TABLE jobs AS SELECT * FROM read_parquet(?)", [jobs])

        def count(query: str) -> int:
            return int(_one(database, query)[0])

        columns = ", ".join(_COLUMNS)
        in_lake = count("SELECT count(*) FROM bronze")
        return Compared(
            in_log=count("SELECT count(*) FROM log"), in_lake=in_lake,
            missing=count("SELECT count(*) FROM log ANTI JOIN bronze USING (id)"),
            twice=in_lake - count("SELECT count(DISTINCT id) FROM bronze"),
            other=count(f"SELECT count(*) FROM (SELECT {columns} FROM bronze EXCEPT SELECT {columns} FROM log)"),
            jobs=count("SELECT count(*) FROM jobs"), wrong_jobs=sum(_one(database, _JOBS)),
            left=sum(1 for name in (lake / "bronze").rglob("*.parquet") if "_temporary" not in name.parts) - len(named),
        )  # fmt: skip


def listed(part: Path) -> list[str]:
    """Return the files of a part of bronze that Spark's own list of them names, batch by batch."""
    found: dict[str, None] = {}
    batches = sorted((part / "_spark_metadata").glob("[0-9]*"), key=lambda path: (int(path.stem), not path.suffix))
    compacted = [path for path in batches if path.suffix == ".compact"]
    begin = int(compacted[-1].stem) if compacted else -1
    for path in batches:
        if int(path.stem) > begin or path == compacted[-1]:
            entries: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()[1:]]
            found.update(dict.fromkeys(unquote(urlparse(entry["path"]).path) for entry in entries))
    return list(found)


def _one(database: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    row = database.execute(query).fetchone()
    assert row is not None
    return row
