"""What an operator does between two runs: compaction, vacuum, and a look at older versions of a table."""

from pathlib import Path

import duckdb
from deltalake import DeltaTable

from django_leasequeue.spark import layout
from django_leasequeue.spark.layout import Lake

#: Versions of bronze that are remembered.
REMEMBERED = 5


class Upkeep:
    """Upkeep of a lake of Delta tables, while no driver runs."""

    def __init__(self, root: Path) -> None:
        self.lake = object.__new__(Lake)  # of paths alone: nothing here asks Spark
        self.lake.root, self.lake.format = str(root), "delta"
        self._known: dict[int, tuple[int, int]] = {}

    def look(self) -> int:
        """Compact and vacuum, then read bronze as it is and as it was; return how many older versions were read."""
        if not DeltaTable.is_deltatable(self.lake.bronze):
            return 0
        layout.maintain(self.lake)
        table = DeltaTable(self.lake.bronze)
        events, distinct = _count(table)
        assert events == distinct, f"{events} events in bronze, {distinct} of them distinct"
        for version, before in self._known.items():
            assert _count(DeltaTable(self.lake.bronze, version=version)) == before, f"version {version} has changed"
        read = len(self._known)
        self._known[table.version()] = events, distinct
        for version in sorted(self._known)[:-REMEMBERED]:
            del self._known[version]
        return read


def _count(table: DeltaTable) -> tuple[int, int]:
    """Return the events, and those of them that are no repetition."""
    rows = "SELECT seqs, row_number() OVER (PARTITION BY id, txid) AS place FROM log"
    with duckdb.connect() as database:
        database.register("log", table.to_pyarrow_dataset())
        query = "SELECT coalesce(sum(len(seqs)), 0), coalesce(sum(len(seqs)) FILTER (WHERE place = 1), 0)"
        counted = database.execute(f"{query} FROM ({rows})").fetchone()
    assert counted is not None
    return int(counted[0]), int(counted[1])
