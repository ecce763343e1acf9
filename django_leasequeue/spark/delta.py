"""Bronze as a Delta table, without Spark's Delta jars: executors write Parquet, the driver commits the files' names.

Each commit carries a Delta application transaction: the id of the stream (of its checkpoint) and the number of
the batch. A batch whose number the table's log already has is skipped, so a killed driver neither loses nor repeats
one. Files of an attempt that was never committed are in no version of the table; vacuum removes them.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

from ..exceptions import InvalidOption
from .layout import PLAIN, Lake
from .unpack import by_job

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

#: What is the same of two rows is one row of the log (ids begin anew in a restored database).
_ROW = ["id", "txid", "occurred_at"]
#: Columns whose bounds the log keeps for each file, so that readers skip files.
_BOUNDS = ("id", "txid", "day")
#: Hours for which vacuum keeps files that no version needs any more: readers and time travel go back so far.
KEPT_HOURS = 168


def installed() -> bool:
    """Return whether the extra ``delta`` is installed."""
    from importlib.util import find_spec

    return find_spec("deltalake") is not None


def uri(lake: Lake) -> str:
    """Return the address of the table."""
    return lake.path("bronze", "log")


def open_or_none(lake: Lake) -> DeltaTable | None:
    """Open the table, or return None where there is none yet."""
    if not installed():
        if lake.format == "parquet" and lake.lines_or_none(f"{uri(lake)}/_delta_log") is None:
            return None
        raise InvalidOption(
            f'The lake {lake.root} has or wants a Delta table: pip install "django-leasequeue[delta]", on the'
            " driver (of Spark Connect: on the server, too)."
        )
    from deltalake import DeltaTable

    return DeltaTable(uri(lake)) if DeltaTable.is_deltatable(uri(lake)) else None


def append(frame: DataFrame, number: int, root: str, checkpoint: str) -> None:
    """Commit one batch of the stream, unless the table has it. A new checkpoint's batches are others: its id is new."""
    from deltalake import CommitProperties, Schema, Transaction
    from deltalake.transaction import create_table_with_add_actions

    lake = Lake(frame.sparkSession, root, "delta")
    stream = json.loads((lake.lines_or_none(f"{checkpoint}/metadata") or ["{}"])[0])["id"]
    table = open_or_none(lake)
    if table is not None:
        committed = table.transaction_version(stream)
        if committed is not None and committed >= number:
            return
        _follow_schema(table, frame)
        frame = _without_known(lake, table, frame, checkpoint, first=committed is None)
    files = _write(lake, frame, f"data/{stream}/{number}-{secrets.token_hex(4)}")
    if not files:
        return
    properties = CommitProperties(
        custom_metadata={"stream": stream, "batch": str(number)}, app_transactions=[Transaction(stream, number)]
    )
    schema = Schema.from_json(frame.schema.json())
    if table is None:
        create_table_with_add_actions(uri(lake), schema, files, "error", name="lease log", commit_properties=properties)
    else:
        table.create_write_transaction(files, "append", table.schema(), commit_properties=properties)


def _write(lake: Lake, frame: DataFrame, directory: str) -> list[Any]:
    """Write the rows below the table, and return what a commit says of each file."""
    from deltalake.transaction import AddAction
    from pyspark.sql import functions as f

    path = f"{uri(lake)}/{directory}"
    options = {**PLAIN, "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
    frame.write.options(**options).parquet(path)
    meta = [f.col(f"_metadata.{name}") for name in ("file_name", "file_size", "file_modification_time")]
    bounds = [how(name).alias(f"{how.__name__}_{name}") for name in _BOUNDS for how in (f.min, f.max)]
    written = lake.spark.read.schema(frame.schema).parquet(path).groupBy(*meta).agg(f.count("*").alias("n"), *bounds)
    return [
        AddAction(
            path=f"{directory}/{row.file_name}",
            size=row.file_size,
            partition_values={},
            modification_time=int(row.file_modification_time.timestamp() * 1000),
            data_change=True,
            stats=json.dumps(
                {
                    "numRecords": row.n,
                    "minValues": {name: row[f"min_{name}"] for name in _BOUNDS},
                    "maxValues": {name: row[f"max_{name}"] for name in _BOUNDS},
                },
                default=str,
            ),
        )
        for row in written.collect()
    ]


def _follow_schema(table: DeltaTable, frame: DataFrame) -> None:
    """Add columns that a newer version of this package has to the table; older rows have nulls there."""
    from deltalake import Schema

    have = {field.name: field.type for field in table.schema().fields}
    wanted = Schema.from_json(frame.schema.json()).fields
    if changed := [field.name for field in wanted if have.get(field.name, field.type) != field.type]:
        raise InvalidOption(f"The table {table.table_uri} has other types of {', '.join(changed)}: use another lake.")
    if new := [field for field in wanted if field.name not in have]:
        table.alter.add_columns(new)


def _without_known(lake: Lake, table: DeltaTable, frame: DataFrame, checkpoint: str, *, first: bool) -> DataFrame:
    """Leave out rows that an earlier checkpoint brought into the table."""
    note = f"{checkpoint}/_leasequeue"
    if first and table.file_uris():
        lake.put_note_at(note, {"follows": table.version()})
    if not lake.note_at(note):
        return frame
    return frame.join(rows(lake, table).select(*_ROW), _ROW, "left_anti").select(*frame.columns)


def rows(lake: Lake, table: DeltaTable) -> DataFrame:
    """Return the rows of the log as the table has them."""
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    files = table.file_uris()
    if lake.root.startswith("s3a://"):
        files = [name.replace("s3://", "s3a://", 1) for name in files]
    return lake.spark.read.schema(schema).parquet(*files) if files else lake.spark.createDataFrame([], schema)


def read_or_none(lake: Lake) -> DataFrame | None:
    """Return the events of the table, one row a job; None where there is no table."""
    table = open_or_none(lake)
    return None if table is None else by_job(rows(lake, table))


def maintain(lake: Lake) -> int:
    """Merge small files, remove those that no version of the last week needs, and write a checkpoint of the log.

    Returns how many files were merged.
    """
    table = open_or_none(lake)
    if table is None:
        return 0
    merged = int(table.optimize.compact()["numFilesRemoved"])
    table.vacuum(KEPT_HOURS, dry_run=False, full=True)
    table.create_checkpoint()
    table.cleanup_metadata()
    return merged
