"""A streaming query without Spark, which several tests run."""

from typing import Any

from pyspark.sql import types

from django_leasequeue.spark import stream
from django_leasequeue.spark.database import STREAM, Options
from tests.spark.helpers import place

#: pyspark 4.1 asks for the end of the log without saying where the stream stands (docs/reference/lake.md).
LIMITS = stream.SupportsTriggerAvailableNow is not None
NUMBERS = types.StructType([types.StructField(name, types.LongType()) for name in ("id", "txid", "seq")])


class Query:
    """A streaming query without Spark: its checkpoint, and the rows of its sink."""

    def __init__(self, dsn: str) -> None:
        self.place = place(dsn)
        self.checkpoint: dict[str, Any] | None = None
        self.rows: list[tuple[int, int, int]] = []

    def reader(self, **options: str) -> Any:
        return stream.stream_reader(Options({**self.place, **options}, STREAM, "stream"), NUMBERS)

    def drain(self, **options: str) -> int:
        """Run to the end of the log; return how many events came."""
        reader = self.reader(**options)
        before = len(self.rows)
        while self.step(reader):
            pass
        return len(self.rows) - before

    def step(self, reader: Any) -> bool:
        """Read a batch and commit it; return whether there was one."""
        start = self.checkpoint or reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        self.checkpoint = start
        if end == start:
            return False
        self.rows += [
            tuple(row.values())
            for slice_ in reader.partitions(start, end)
            for batch in reader.read(slice_)
            for row in batch.to_pylist()
        ]
        self.checkpoint = end
        return True

    @property
    def seqs(self) -> list[int]:
        return sorted(seq for _, _, seq in self.rows)
