"""The paths of things in the lake. A path is local, ``s3a://``, ``gs://`` ...: whatever the site's Spark can open."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..exceptions import InvalidOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Columns of a bronze event, in the order of the source's table.
BRONZE = (
    "id bigint, txid bigint, occurred_at timestamp, queue_id bigint, queue string, project string, seq bigint,"
    " claim bigint, deadline timestamp, deliveries int, waited int, ran int, event string, node string, name string,"
    " detail string"
)
#: Columns of a row of the log as bronze keeps it, with the events of up to a thousand jobs (see :mod:`.unpack`).
BATCHES = (
    "id bigint, txid bigint, occurred_at timestamp, queue_id bigint, queue string, project string, claim bigint,"
    " deadline timestamp, kind smallint, node string, name string, seqs array<bigint>, deliveries array<int>,"
    " waited array<int>, ran array<int>, detail string"
)
#: Options of Parquet. Numbers and times that hardly repeat: to try a dictionary for them made reading 5 million events
#: and writing them a quarter dearer (26 against 21 CPU seconds), and the files larger (70 against 55 MB).
PLAIN = {
    f"parquet.enable.dictionary#{column}": "false"
    for column in (
        *("id", "seq", "claim", "occurred_at", "enqueued_at", "deadline"),
        *("ready_at", "claimed_at", "first_claimed_at", "ended_at", "waited", "ran", "total"),
        *(f"{name}.list.element" for name in ("seqs", "waited", "ran")),
    )
}
#: How bronze is written: by Spark's file sink, or as a Delta table.
FORMATS = ("parquet", "delta")


class Lake:
    """The paths of one lake, and the small notes that the pipeline keeps in it."""

    def __init__(self, spark: SparkSession, root: str, format: str = "parquet") -> None:
        if format not in FORMATS:
            raise InvalidOption(f"A lake's format is one of {', '.join(FORMATS)}; it is {format!r}.")
        if not root or root.strip("/") == "":
            raise InvalidOption("The lake needs a path: LEASEQUEUE['LAKE']['PATH'], or --lake.")
        self.spark = spark
        self.root = root.rstrip("/")
        self.format = format

    def path(self, *parts: str) -> str:
        """Return a path below the lake."""
        return "/".join((self.root, *parts))

    @property
    def bronze(self) -> str:
        """Events as they are, by day."""
        return self.path("bronze", "events")

    def silver(self, name: str) -> str:
        """One row per attempt, or per job, by the day the job was enqueued."""
        return self.path("silver", name)

    def gold(self, name: str) -> str:
        """The figures."""
        return self.path("gold", name)

    def checkpoint(self, name: str) -> str:
        """Return the path of what a stream remembers."""
        return self.path("_checkpoints", name)

    def exists(self, path: str) -> bool:
        """Return whether Spark finds something to read there."""
        return self.read_or_none(path) is not None

    def read(self, path: str) -> DataFrame:
        """Read Parquet."""
        frame = self.read_or_none(path)
        if frame is None:
            raise InvalidOption(f"There is nothing at {path} yet: run the pipeline first (leasequeue_lake run).")
        return frame

    def read_or_none(self, path: str) -> DataFrame | None:
        """Read Parquet, or return None where there is none yet."""
        from pyspark.errors import AnalysisException

        try:
            frame = self.spark.read.parquet(path)
            # Over Spark Connect nobody looks before something is asked.
            _ = frame.schema
            return frame
        except AnalysisException as error:
            condition = error.getCondition() or ""
            if condition in {"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"}:
                return None
            raise

    def note(self, name: str) -> dict[str, Any]:
        """Return what was noted under a name, or nothing."""
        return self.note_at(self.path("_notes", name))

    def note_at(self, path: str) -> dict[str, Any]:
        """Return what was noted in a directory, or nothing."""
        lines = self.lines_or_none(path)
        return dict(json.loads(lines[0])) if lines else {}

    def lines_or_none(self, path: str) -> list[str] | None:
        """Return the lines of a file, or of the files of a directory; None where there is none."""
        from pyspark.errors import AnalysisException

        try:
            return [row[0] for row in self.spark.read.text(path).collect()]
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return None
            raise

    def put_note(self, name: str, value: dict[str, Any]) -> None:
        """Note something, in place of what was there. A note that is lost only makes work be done again."""
        self.put_note_at(self.path("_notes", name), value)

    def put_note_at(self, path: str, value: dict[str, Any]) -> None:
        """Note something in a directory, in place of what was there."""
        frame = self.spark.createDataFrame([(json.dumps(value),)], "value string")
        frame.coalesce(1).write.mode("overwrite").text(path)
