"""Hand-made histories of jobs."""

import itertools
import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.spark.helpers import at

SCHEMA = (
    "id bigint, txid bigint, occurred_at timestamp, queue string, project string, seq bigint, waited int,"
    " ran int, deadline timestamp, deliveries int, event string, node string, name string, detail string"
)


class History:
    """Events of jobs, told in seconds after noon."""

    queue = "work"

    def __init__(self, lease: float = 30) -> None:
        self.lease = lease
        self.rows: list[tuple[Any, ...]] = []
        self._ids, self._seqs = itertools.count(1), itertools.count(1)

    def event(self, seq: int, event: str, second: float, **fields: Any) -> None:
        number, detail = next(self._ids), fields.get("detail")
        waited = None if fields.get("waited") is None else round(fields["waited"] * 1000)
        deadline = at(second + self.lease) if event in {"claimed", "extended"} else None
        detail = None if detail is None else json.dumps(detail)
        place = (number, number, at(second), self.queue, "", seq, waited, fields.get("ran"), deadline)
        self.rows.append((*place, None, event, fields.get("node"), fields.get("task", "t"), detail))

    def job(self, enqueued: float, *tries: tuple[str, float, float, str], fingerprint: str = "boom") -> None:
        """One job: (node, claimed, ended, outcome) a try."""
        seq, ready = next(self._seqs), enqueued
        self.event(seq, "enqueued", enqueued)
        for node, claimed, ended, outcome in tries:
            self.event(seq, "claimed", claimed, node=node, waited=claimed - ready)
            ready = ended
            failed = outcome in {"failed", "released", "dead_lettered"}
            detail = {"error_type": "E", "fingerprint": fingerprint} if failed else None
            for event in ("released", outcome) if outcome == "dead_lettered" else (outcome,):
                self.event(seq, event, ended, node=node, detail=detail)

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame(self.rows, SCHEMA)
