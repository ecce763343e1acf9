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

    def __init__(self, queue: str = "work", lease: float = 30) -> None:
        self.queue, self.lease = queue, lease
        self.rows: list[tuple[Any, ...]] = []
        self._ids = itertools.count(1)
        self._seqs = itertools.count(1)

    def event(self, seq: int, event: str, second: float, **fields: Any) -> None:
        number = next(self._ids)
        detail = fields.get("detail")
        waited = None if fields.get("waited") is None else int(fields["waited"] * 1000)
        deadline = at(second + self.lease) if event in {"claimed", "extended"} else None
        detail = None if detail is None else json.dumps(detail)
        place = (number, number, at(second), self.queue, "", seq, waited, fields.get("ran"), deadline)
        self.rows.append((*place, None, event, fields.get("node"), fields.get("task", "t"), detail))

    def job(
        self, enqueued: float, *tries: tuple[str, float, float, str], task: str = "t", fingerprint: str = "boom"
    ) -> int:
        """One job: (node, claimed, ended, outcome) a try."""
        seq = next(self._seqs)
        common = {"task": task}
        self.event(seq, "enqueued", enqueued, **common)
        ready = enqueued
        for node, claimed, ended, outcome in tries:
            self.event(seq, "claimed", claimed, node=node, waited=claimed - ready, **common)
            ready = ended
            if outcome == "running":
                continue
            detail = None
            if outcome in {"failed", "released", "dead_lettered"}:
                detail = {"error_type": "E", "fingerprint": fingerprint}
            if outcome == "dead_lettered":
                self.event(seq, "released", ended, node=node, detail=detail, **common)
            self.event(seq, outcome, ended, node=node, detail=detail, **common)
        return seq

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame(self.rows, SCHEMA)
