"""Delta tables without Spark's Delta jars: executors write Parquet, the driver commits the files' names.

Each commit of bronze names the stream and the batch (as a Delta application transaction). A batch that the table's log
has is skipped, so a killed driver neither loses nor repeats one. A commit of silver replaces whole days at once. Vacuum
removes files that were never committed.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..exceptions import InvalidOption

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

#: Options of Parquet. Numbers and times that hardly repeat: to try a dictionary for them made reading 5 million events
#: and writing them a quarter dearer (26 against 21 CPU seconds), and the files larger (70 against 55 MB).
PLAIN = {
    f"parquet.enable.dictionary#{column}": "false"
    for column in (
        *("id", "seq", "claim", "occurred_at", "enqueued_at", "deadline"),
        *("ready_at", "claimed_at", "first_claimed_at", "ended_at", "waited", "ran", "held", "delay", "total"),
        *(f"{name}.list.element" for name in ("seqs", "waited", "ran")),
    )
}
#: Columns whose bounds the log keeps for each file, so that readers skip files.
_BOUNDS = ("id", "txid", "day", "seq")
#: The partitions of silver. Delta keeps them in its log, not in the files: there they follow from this column.
DAY, _DAY_OF = "job_day", "enqueued_at"


def installed() -> bool:
    """Return whether the extra ``delta`` is installed."""
    return find_spec("deltalake") is not None


def open_or_none(path: str) -> DeltaTable | None:
    """Open a table, or return None where there is none yet."""
    if not installed():
        raise InvalidOption(
            'A lake of Delta tables needs the extra: pip install "django-leasequeue[delta]", on the driver (of Spark'
            ' Connect: on the server, too). Without it: LEASEQUEUE["LAKE"]["FORMAT"] = "parquet".'
        )
    from deltalake import DeltaTable

    return DeltaTable(path) if DeltaTable.is_deltatable(path) else None


def rows(spark: SparkSession, path: str, table: DeltaTable, days: Sequence[tuple[str, str, Any]] = ()) -> DataFrame:
    """Read a table by Spark, of a partitioned one the days that these conditions choose: its log names the files."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    parted = bool(table.metadata().partition_columns)
    if parted:
        schema = StructType([field for field in schema if field.name != DAY])
    files = table.file_uris(file_pruning_predicate=list(days) or None)
    if path.startswith("s3a://"):
        files = [name.replace("s3://", "s3a://", 1) for name in files]
    found = spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)
    return found.withColumn(DAY, f.col(_DAY_OF).cast("date").cast("string")) if parted else found


def replace(frame: DataFrame, path: str, days: Sequence[str] | None = None) -> None:
    """Commit a table of silver in place of what is there, or of these days of it; a reader sees all of it or none."""
    from pyspark.sql import functions as f

    table = open_or_none(path)
    files = write_files(frame.withColumn(DAY, f.col(_DAY_OF).cast("date")), path, f"data/{secrets.token_hex(8)}", DAY)
    told = frame.withColumn(DAY, f.lit("").cast("string"))
    where = None if days is None or table is None else [(DAY, "in", list(days))]
    commit(path, table, told, files, "overwrite", where, partition_by=[DAY])


def commit(
    path: str,
    table: DeltaTable | None,
    frame: DataFrame,
    files: list[Any],
    mode: Any,
    where: Any = None,
    **options: Any,
) -> None:
    """Commit files that ``write_files`` wrote; the first ones make the table. ``options`` are deltalake's."""
    from deltalake import Schema
    from deltalake.transaction import create_table_with_add_actions

    if table is None or (mode == "overwrite" and where is None):
        # All of it anew: also its columns.
        schema = Schema.from_json(frame.schema.json())
        create_table_with_add_actions(path, schema, files, "error" if table is None else mode, **options)
    else:
        table.create_write_transaction(files, mode, table.schema(), partition_filters=where, **options)


def write_files(frame: DataFrame, path: str, directory: str, by: str | None = None) -> list[Any]:
    """Write the rows below the table, and return what a commit says of each file: the files' footers tell it."""
    import pyarrow.fs
    import pyarrow.parquet
    from deltalake.fs import DeltaStorageHandler
    from deltalake.transaction import AddAction

    options = {**PLAIN, "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
    writer = frame.write.options(**options)
    (writer.partitionBy(by) if by else writer).parquet(f"{path}/{directory}")
    store = pyarrow.fs.PyFileSystem(DeltaStorageHandler(path))
    actions = []
    for file in store.get_file_info(pyarrow.fs.FileSelector(directory, recursive=True, allow_not_found=True)):
        if file.type != pyarrow.fs.FileType.File or not file.path.endswith(".parquet"):
            continue
        footer = pyarrow.parquet.read_metadata(file.path, filesystem=store)
        if not footer.num_rows:
            continue
        bounds: dict[str, list[Any]] = {}
        for group, place in itertools.product(range(footer.num_row_groups), range(footer.num_columns)):
            column = footer.row_group(group).column(place)
            if column.path_in_schema in _BOUNDS and column.statistics is not None and column.statistics.has_min_max:
                bounds.setdefault(column.path_in_schema, []).extend([column.statistics.min, column.statistics.max])
        stats = {
            "numRecords": footer.num_rows,
            "minValues": {name: min(found) for name, found in bounds.items()},
            "maxValues": {name: max(found) for name, found in bounds.items()},
        }
        day = {by: file.path.split(f"{by}=", 1)[1].split("/", 1)[0]} if by else {}
        at, told = (file.mtime_ns or 0) // 1_000_000, json.dumps(stats, default=str)
        actions.append(AddAction(file.path, file.size, day, modification_time=at, data_change=True, stats=told))
    return actions


def follow_schema(table: DeltaTable, frame: DataFrame) -> None:
    """Add columns that a newer version of this package has to the table; older rows have nulls there."""
    from deltalake import Schema

    have = {field.name: field.type for field in table.schema().fields}
    wanted = Schema.from_json(frame.schema.json()).fields
    if changed := [field.name for field in wanted if have.get(field.name, field.type) != field.type]:
        raise InvalidOption(f"The table {table.table_uri} has other types of {', '.join(changed)}: use another lake.")
    if new := [field for field in wanted if field.name not in have]:
        table.alter.add_columns(new)
