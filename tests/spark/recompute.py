"""The figures by other means: a random history, and each definition of docs/reference/lake.md as SQL for DuckDB.

The SQL reads the raw events and joins them with each other; the metrics walk over sorted windows. They share no code.
"""

import itertools
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

BEGIN = datetime(2030, 1, 1, 12, tzinfo=UTC)
KINDS = {"id": pa.int64(), "txid": pa.int64(), "seq": pa.int64(), "waited": pa.int32(), "ran": pa.int32()}
KINDS |= dict.fromkeys(["occurred_at", "deadline"], pa.timestamp("us", "UTC"))
NAMES = "id txid occurred_at queue project seq waited ran deadline event node name detail"
COLUMNS = {name: KINDS.get(name, pa.string()) for name in NAMES.split()}
PLACES = (("", "mail", "send"), ("", "images", "resize"), ("shop", "mail", "send"), ("shop", "alone", "build"))


class Random:
    """A random history of about 2,000 jobs in 16 days; ``worker-3`` is ill from the tenth day on."""

    def __init__(self, seed: int = 11, jobs: int = 2_000) -> None:
        self.random = random.Random(seed)
        self.rows: list[dict[str, Any]] = []
        self._ids = itertools.count(1)
        for seq in range(1, jobs + 1):
            self._job(seq)
        # What was read twice counts once.
        self.rows += self.random.sample(self.rows, 200)
        self.random.shuffle(self.rows)

    def _event(self, base: dict[str, Any], event: str, at: float, **fields: Any) -> None:
        detail = fields.pop("detail", None)
        number = next(self._ids)
        row = {"id": number, "txid": number, "event": event, "occurred_at": BEGIN + timedelta(seconds=round(at, 3))}
        self.rows.append({**base, **row, **fields, "detail": None if detail is None else json.dumps(detail)})

    def _job(self, seq: int) -> None:
        draw, chance = self.random.random, self.random.choice
        project, queue, name = chance(PLACES)
        base = {"seq": seq, "project": project, "queue": queue, "name": name}
        at = 16 * 86_400 * draw()
        if draw() < 0.02:
            # A copy in a topic of dead letters, redriven from there.
            self._event(base, "redriven", at, detail={"to": "x", "to_seq": 1})
            return
        if draw() < 0.8:
            self._event(base, "enqueued", at)
        ready = at
        for _ in range(6):
            if draw() < 0.01:
                self._event(base, "cancelled", ready + 1, detail={"reason": "ttl"})
                return
            ready = self._attempt(base, ready)
            if ready < 0:
                return
        if draw() < 0.3:
            self._event(base, "extended", ready + 1, node="worker-1", deadline=BEGIN + timedelta(seconds=ready + 31))

    def _attempt(self, base: dict[str, Any], ready: float) -> float:
        """One attempt; when the job is ready again, or -1."""
        draw = self.random.random
        node = "worker-9" if base["queue"] == "alone" else self.random.choice(("worker-1", "worker-2", "worker-3"))
        waited = round(self.random.expovariate(1 / 20), 3)
        begin, lease = ready + waited, 30.0
        held = round(self.random.lognormvariate(1, 1), 3)
        told = {"node": node, "deadline": BEGIN + timedelta(seconds=begin + lease)}
        self._event(base, "claimed", begin, waited=round(waited * 1000), **told)
        end = begin + held
        if held > 12:
            lease += 20
            told["deadline"] = BEGIN + timedelta(seconds=begin + lease)
            self._event(base, "extended", begin + 10, **told)
        ill = node == "worker-3" and begin > 10 * 86_400 and draw() < 0.6
        luck = 1.0 if node == "worker-9" and draw() < 0.5 else draw()
        if held > lease or (ill and draw() < 0.4):
            self._event(base, "expired", begin + lease + 1, **told)
            return begin + lease + 1
        if ill or luck > 0.93:
            error = {"error_type": "E", "fingerprint": self.random.choice(("disk", "poison"))}
            self._event(base, "released", end, node=node, detail=error)
            if draw() < 0.3:
                self._event(base, "dead_lettered", end, node=node, detail=error)
                return self._dead(base, end)
            return end + 5
        if luck > 0.9:
            self._event(base, "released", begin + 0.001, node=node, detail={"unstarted": True})
            return begin + 1
        if luck > 0.87:
            self._event(base, "failed", end, node=node, ran=round(held * 900), detail={"error_type": "F"})
            return self._dead(base, end)
        if luck > 0.86:
            return -1  # still leased
        self._event(base, "acked", end, node=node, ran=None if draw() < 0.5 else round(held * 900))
        return -1

    def _dead(self, base: dict[str, Any], end: float) -> float:
        """What becomes of a job that is over: replayed, redriven elsewhere or here, discarded, or nothing."""
        luck = self.random.random()
        if luck < 0.2:
            self._event(base, "redriven", end + 500, detail={"by": "spark"})
        elif luck < 0.4:
            self._event(base, "redriven", end + 7_200, detail={"to": "other", "to_seq": 10_000_000})
        elif luck < 0.6:
            self._event(base, "redriven", end + 4_000)
            return end + 4_000
        elif luck < 0.8:
            self._event(base, "cancelled", end + 9_000, detail={"reason": "discarded"})
        return -1

    def table(self) -> pa.Table:
        schema = pa.schema(COLUMNS.items())
        return pa.Table.from_pylist([{name: row.get(name) for name in COLUMNS} for row in self.rows], schema)


#: A view for each table of silver. An end of an attempt: the first one after its claim and before the next claim.
SILVER = """
CREATE VIEW e AS SELECT DISTINCT * REPLACE (detail::JSON AS detail),
    event = 'redriven' AND (detail::JSON ->> 'to_seq' IS NOT NULL OR detail::JSON ->> 'by' IS NOT NULL) AS moved,
    (occurred_at, id) AS place FROM events;

CREATE TABLE firsts AS SELECT seq,
    arg_min(occurred_at - coalesce(waited, 0) * INTERVAL 1 MILLISECOND, place) AS enqueued_at FROM e GROUP BY seq;

CREATE TABLE attempts AS
WITH c AS (
    SELECT a.*, count(b.id) AS attempt,
        (SELECT min(n.place) FROM e n WHERE n.seq = a.seq AND n.event = 'claimed' AND n.place > a.place) AS next
    FROM e a JOIN e b ON b.seq = a.seq AND b.event = 'claimed' AND b.place <= a.place
    WHERE a.event = 'claimed' GROUP BY ALL
), x AS (
    SELECT c.*, (SELECT arg_min(n, n.place) FROM e n WHERE n.seq = c.seq
            AND n.event IN ('acked', 'failed', 'released', 'expired', 'cancelled')
            AND n.place > c.place AND (c.next IS NULL OR n.place < c.next)) AS n,
        (SELECT count(*) FROM e x WHERE x.seq = c.seq AND x.event = 'extended'
            AND x.place > c.place AND (c.next IS NULL OR x.place < c.next)) AS extensions
    FROM c
), y AS (
    SELECT x.*, CASE n.event WHEN 'acked' THEN 'completed' ELSE coalesce(n.event, 'running') END AS outcome,
        coalesce(n.detail ->> 'unstarted' = 'true', false) AS unstarted,
        epoch_us(n.occurred_at - x.occurred_at) / 1e6 AS held
    FROM x
)
SELECT project, queue, name AS task, y.seq, attempt, node, occurred_at AS claimed_at, n.occurred_at AS ended_at,
    outcome, unstarted,
    CASE WHEN outcome = 'expired' THEN 'LEASE_EXPIRED' ELSE n.detail ->> 'error_type' END AS error_type,
    CASE WHEN outcome = 'expired' THEN 'lease_expired' ELSE n.detail ->> 'fingerprint' END AS fingerprint,
    waited / 1e3 AS waited, held, extensions, epoch_us(deadline - occurred_at) / 1e6 AS lease,
    CASE WHEN outcome IN ('completed', 'failed', 'released') AND NOT unstarted
        THEN coalesce(n.ran / 1e3, held) END AS ran
FROM y;

-- The state is said by the last event of state; the end is the first of them after the job lived last.
CREATE TABLE jobs AS
WITH s AS (
    SELECT e.seq, place, occurred_at, detail, CASE WHEN moved THEN 'redriven' ELSE CASE event WHEN 'acked'
        THEN 'completed' WHEN 'failed' THEN 'failed' WHEN 'dead_lettered' THEN 'dead' WHEN 'cancelled' THEN 'cancelled'
        ELSE 'open' END END AS state
    FROM e WHERE event NOT IN ('extended', 'released', 'expired')
), l AS (
    SELECT seq, max(place) FILTER (WHERE state = 'open') AS lived, arg_max(state, place) AS state,
        arg_max({'it': detail}, place).it AS detail
    FROM s GROUP BY seq
)
SELECT any_value(e.project) AS project, any_value(e.queue) AS queue, any_value(e.name) AS task, e.seq, enqueued_at,
    coalesce(l.state, 'open') AS state, count(*) FILTER (WHERE e.event = 'claimed') AS deliveries,
    count(*) FILTER (WHERE e.event = 'expired') AS expiries, count(*) FILTER (WHERE e.event = 'released') AS releases,
    CASE WHEN l.state <> 'open' THEN (SELECT min(s.occurred_at) FROM s
        WHERE s.seq = e.seq AND s.state <> 'open' AND (l.lived IS NULL OR s.place > l.lived)) END AS ended_at,
    CASE WHEN l.state <> 'open' THEN l.detail ->> 'fingerprint' END AS fingerprint
FROM e JOIN firsts USING (seq) LEFT JOIN l USING (seq)
GROUP BY e.seq, firsts.enqueued_at, l.seq, l.state, l.detail, l.lived
HAVING NOT (count(*) FILTER (WHERE e.event = 'claimed') = 0 AND arg_min(e.moved, e.place));
"""


def duck() -> tuple[duckdb.DuckDBPyConnection, pa.Table]:
    events = Random().table()
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("raw", events)
    connection.execute("CREATE TABLE events AS SELECT * FROM raw")
    connection.execute(SILVER)
    return connection, events
