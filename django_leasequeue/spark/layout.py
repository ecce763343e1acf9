"""The lake: its paths, tables and notes, the lock under which one run writes it, and the versions of its tables.

A path is local, ``s3a://``, ``gs://`` ...: whatever the site's Spark can open.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..exceptions import InvalidOption, LeaseQueueError
from . import delta, tables
from .database import fetch, resolve_of

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame, SparkSession

#: Columns of an event of bronze, and of a row of the log as bronze keeps it (see :mod:`.bronze`).
BRONZE = tables.EVENTS.ddl("kind")
BATCHES = tables.BATCHES.ddl("low", "high", "event")
#: The tables of gold, and the order in which they are read: by these columns, ``-`` the greatest first, nulls last.
#: The last columns name a row. (Files are written in order, and read in any: Delta keeps none.)
TABLES = {
    **dict.fromkeys(("backlog", "in_flight", "use"), "project queue hour"),
    **dict.fromkeys(("capacity", "forecast"), "project queue hour_of_week"),
    "latency": "project queue task measure hour",
    "queue_latency": "project queue measure hour",
    "daily": "project queue measure day",
    "weeks": "project queue measure",
    "throughput": "project queue task hour",
    "nodes": "-sigmas node",
    "poison": "-dead -failures project queue task fingerprint",
    "leases": "project queue node",
    "span": "",
    "quality": "-violations check",
    "workflows": "-elapsed workflow",
    "critical_paths": "workflow step",
    "objectives": "share project queue",
    "retry_cost": "-seconds project queue task outcome error_type",
    "tenants": "-seconds tag tenant project queue",
    "time_split": "-total project queue",
    "recoveries": "-began project queue",
    "changes": "-errors project queue measure",
}
#: How tables are written: as Parquet by Spark alone, or as Delta tables.
FORMATS = ("parquet", "delta")
#: Hours for which vacuum keeps files that no version needs any more: readers and time travel go back so far.
KEPT_HOURS = 168
#: Version of the columns of silver. A lake of an older one is computed anew from bronze.
SILVER = 6
#: Version of the tables of gold. A lake of another one gets them anew with the next run.
GOLD = 5


def order(name: str) -> list[tuple[str, bool]]:
    """Return the order of a table of gold: columns, and whether their greatest values come first."""
    return [(word.lstrip("-"), word.startswith("-")) for word in TABLES[name].split()]


@contextmanager
def _may_be_missing() -> Iterator[None]:
    """Pass over that there is nothing at a path; of Parquet, also that there is a directory without a file."""
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        if error.getCondition() not in {"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"}:
            raise


class Lake:
    """The paths of one lake, and the small notes that the pipeline keeps in it."""

    def __init__(self, spark: SparkSession, root: str, format: str | None = None) -> None:
        if format is not None and format not in FORMATS:
            raise InvalidOption(f"A lake's format is one of {', '.join(FORMATS)}; it is {format!r}.")
        if not root or root.strip("/") == "":
            raise InvalidOption("The lake needs a path: LEASEQUEUE['LAKE']['PATH'], or --lake.")
        self.spark = spark
        self.root = root.rstrip("/")
        #: All notes, while this process holds the lock of the lake and no other writes them.
        self.notes: dict[str, dict[str, Any]] | None = None
        # What the lake began with; else Delta where its extra is installed. (A Connect server may not have it.)
        here = delta.installed() and not type(spark).__module__.startswith("pyspark.sql.connect")
        self.format = format or self.note("lake").get("format") or ("delta" if here else "parquet")

    def path(self, *parts: str) -> str:
        return "/".join((self.root, *parts))

    @property
    def bronze(self) -> str:
        """The rows of the log as they are."""
        return self.path("bronze", "log" if self.format == "delta" else "events")

    def silver(self, name: str) -> str:
        """One row per attempt, or per job, by the day the job was enqueued."""
        return self.path("silver", name)

    def gold(self, name: str) -> str:
        return self.path("gold", name)

    def checkpoint(self, name: str) -> str:
        """Return the path of what a stream remembers."""
        return self.path("_checkpoints", name)

    def stream(self, checkpoint: str) -> str | None:
        """Return the id of the stream that a checkpoint is of; None where there is no checkpoint yet."""
        return self.note_at(f"{checkpoint}/metadata").get("id")

    def read(self, path: str) -> DataFrame:
        frame = self.read_or_none(path)
        if frame is None:
            raise InvalidOption(f"There is nothing at {path} yet: run the pipeline first (leasequeue_lake run).")
        return frame

    def read_or_none(self, path: str, *days: tuple[str, str, Any]) -> DataFrame | None:
        """Read a table, or return None where there is none yet; ``days`` are conditions on days of a Delta table."""
        if self.format == "delta":
            table = delta.open_or_none(path)
            return None if table is None else delta.rows(self.spark, path, table, days)
        with _may_be_missing():
            frame = self.spark.read.parquet(path)
            # Spark Connect looks only when something is asked.
            _ = frame.schema
            return frame
        return None

    def write(self, path: str, rows: DataFrame, days: list[str] | None = None) -> None:
        """Write a table of silver, by the day of ``enqueued_at``, in place of what is there, or of these days of it."""
        if self.format == "delta":
            delta.replace(rows, path, days)
            return
        from pyspark.sql import functions as f

        rows = rows.withColumn("job_day", f.col("enqueued_at").cast("date"))
        options = {**delta.PLAIN, "partitionOverwriteMode": "static" if days is None else "dynamic"}
        rows.write.partitionBy("job_day").mode("overwrite").options(**options).parquet(path)
        # Spark replaces the days that have rows now; one that has none left would keep what it had.
        filled = {} if not days else {row.job_day.isoformat() for row in rows.select("job_day").distinct().collect()}
        for day in sorted(set(days or ()).difference(filled)):
            rows.drop("job_day").where("false").coalesce(1).write.mode("overwrite").parquet(f"{path}/job_day={day}")

    def put(self, path: str, rows: DataFrame) -> None:
        """Write a table of gold, which is small, in place of what is there."""
        if self.format == "delta":
            from deltalake import write_deltalake

            write_deltalake(path, rows.toArrow(), mode="overwrite", schema_mode="overwrite")
        else:
            rows.coalesce(1).write.mode("overwrite").parquet(path)

    def note(self, name: str) -> dict[str, Any]:
        return self.note_at(self.path("_notes", name)) if self.notes is None else dict(self.notes.get(name, {}))

    def all_notes(self) -> dict[str, dict[str, Any]]:
        """Return all notes by name, from one look at the lake."""
        from pyspark.sql import functions as f

        with _may_be_missing():
            rows = self.spark.read.text(self.path("_notes", "*")).select(f.input_file_name(), "value").collect()
            return {file.rsplit("/", 2)[1]: json.loads(value) for file, value in rows}
        return {}

    def note_at(self, path: str) -> dict[str, Any]:
        lines = self.lines_or_none(path)
        return dict(json.loads(lines[0])) if lines else {}

    def lines_or_none(self, path: str) -> list[str] | None:
        """Return the lines of a file, or of the files of a directory; None where there is none."""
        with _may_be_missing():
            return [row[0] for row in self.spark.read.text(path).collect()]
        return None

    def put_note(self, name: str, value: dict[str, Any]) -> None:
        """Note something, in place of what was there. A note that is lost only makes work be done again."""
        if self.notes is not None and self.notes.get(name) == value:
            return
        self.put_note_at(self.path("_notes", name), value)
        if self.notes is not None:
            self.notes[name] = value

    def put_note_at(self, path: str, value: dict[str, Any]) -> None:
        """Note something in a directory, in place of what was there."""
        frame = self.spark.createDataFrame([(json.dumps(value),)], "value string")
        frame.coalesce(1).write.mode("overwrite").text(path)


class RunInProgress(LeaseQueueError):
    """Another run of the same lake is not over; what it writes must not be written twice at once."""


class OtherInstall(LeaseQueueError):
    """The lake has the events of another install; a second one would mix its own with them."""


@contextmanager
def only_run(
    lake: Lake, source: Mapping[str, str], consumer: str | None = None, *, adopt: bool = False
) -> Iterator[None]:
    """Hold the lock of a lake, and of its consumer, by a connection of its own; refuse a lake of another install."""
    with resolve_of(source).connect() as connection:
        if consumer is not None and not fetch(connection, "lake/run_lock", name=consumer)[0][0]:
            told = f"Another run of the consumer {consumer!r} is not over: wait for it, or give a second lake"
            raise RunInProgress(f"{told} a consumer of its own (--consumer).")
        # By the name that the lake bears: another spelling of its path is the same lake.
        locked = "lake " + str(lake.note("lake").get("name", lake.root))
        if not fetch(connection, "lake/run_lock", name=locked)[0][0]:
            raise RunInProgress(
                f"Another command writes to the lake {lake.root}, or a run of another consumer: wait for it. A lake has"
                " one consumer; give a second one a path of its own (--lake)."
            )
        lake.notes = lake.all_notes()
        try:
            known = lake.note("lake")
            if known.get("format", lake.format) != lake.format:
                raise InvalidOption(
                    f"The lake {lake.root} has tables in the format {known['format']!r}, not {lake.format!r}: set"
                    " LEASEQUEUE['LAKE']['FORMAT'] to that, or give the lake another path."
                )
            # A note of its own: what names the format is never written again, so no crash loses it.
            lake.put_note("install", _install(lake, connection, lake.note("install"), adopt))
            if not known:
                lake.put_note("lake", {"name": lake.root, "format": lake.format})
            yield
        finally:
            lake.notes = None


def _install(lake: Lake, connection: Connection[Any], known: dict[str, str], adopt: bool) -> dict[str, str]:
    """Return the identity of the install; refuse a lake of another one. A restored database is the one that it was."""
    ((*names, was_there),) = fetch(connection, "lake/install", system=known.get("system"))
    here = dict(zip(("system", "database", "schema"), names, strict=True))
    # A role may not be allowed to know the system.
    moved = bool(known) and "" not in (known["system"], here["system"]) and known["system"] != here["system"]
    others = []
    if (moved and not was_there) or any(known[name] != here[name] for name in ("database", "schema") if known):
        others = [known]
    elif not known:
        # Two installs may begin a lake at once. Each leaves its claim, then looks: on any storage one sees the other's.
        lake.put_note(f"claim-{secrets.token_hex(8)}", here)
        others = [note for name, note in lake.all_notes().items() if name.startswith("claim-") and note != here]
    if others and not adopt:
        had, has = ("database {database}, schema {schema}, system {system}".format(**one) for one in (others[0], here))
        raise OtherInstall(
            f"The lake {lake.root} has the events of another install ({had}) than this one ({has}): give each a path of"
            " its own (--lake). If the other one writes no more (this one was moved or renamed, or both began the lake"
            " at once), run once with --adopt."
        )
    return here


def is_current(lake: Lake) -> bool:
    """Return whether silver has the columns of this version; if it is older, it is to be computed anew."""
    version = lake.note("schema").get("silver", 1)
    if version > SILVER:
        told = f"The lake {lake.root} has silver tables of version {version}, this package knows {SILVER}"
        raise InvalidOption(f"{told}: use the newer package, or another lake.")
    return bool(version == SILVER)


def maintain(lake: Lake) -> int:
    """Merge small files of all tables, remove those that no version of the last week needs; return how many merged."""
    silver = [lake.silver(name) for name in ("attempts", "jobs", "waiting")]
    merged = 0
    for path in (lake.bronze, *silver, *map(lake.gold, TABLES)):
        if (table := delta.open_or_none(path)) is not None:
            merged += int(table.optimize.compact()["numFilesRemoved"])
            table.vacuum(KEPT_HOURS, dry_run=False, full=True)
            table.create_checkpoint()
            table.cleanup_metadata()
    return merged
