"""Critical paths of workflows: from the log to the report, and once more by other means."""

import itertools
import json
import random
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob, Node, Release
from django_leasequeue.models import EventKind, JobEvent, LeaseEvent
from django_leasequeue.spark import metrics, pipeline
from django_leasequeue.spark.layout import Lake
from tests.engine.helpers import NODE, claim, make, put
from tests.spark.conftest import Source
from tests.spark.helpers import SCHEMA, History


def node(label: str, *parents: int, **options: Any) -> Node:
    return Node("work", NewJob({"label": label}, name=f"app.{label[0]}"), parents, label=label, **options)


def start(*nodes: Node, name: str = "nightly") -> str:
    uid = uuid4()
    engine.run(engine.start_workflow(nodes, uid, name=name))
    return str(uid)


@pytest.mark.django_db(transaction=True)
class TestFromTheLog:
    @pytest.fixture(autouse=True)
    def queue(self) -> None:
        make(max_deliveries=1, exhaust_at="release", dead_letter="self", result_ttl_ms=86_400_000)

    def test_a_workflow_is_in_the_log_once_and_plain_jobs_are_not(self, source: Source) -> None:
        put(1, name="plain")
        uid = start(node("a1"), node("a2"), node("b", 0, 1, tolerant=True))
        rows = list(LeaseEvent.objects.filter(kind=EventKind.LINKED).order_by("name"))
        assert [(row.name, len(row.seqs)) for row in rows] == [("app.a", 2), ("app.b", 1)]
        assert {row.txid for row in rows} == {LeaseEvent.objects.filter(name="app.b").earliest("id").txid}
        assert set(JobEvent.objects.filter(kind=EventKind.LINKED).values_list("deliveries", flat=True)) == {None}
        # Read job by job, each says what concerns itself.
        found = source.read().where("event = 'linked'").orderBy("seq").collect()
        (a1, a2), (b,) = rows[0].seqs, rows[1].seqs
        told = {"workflow": uid, "name": "nightly"}
        assert [(row.seq, json.loads(row.detail)) for row in found] == [
            (a1, {**told, "parents": [], "label": "a1", "tolerant": False}),
            (a2, {**told, "parents": [], "label": "a2", "tolerant": False}),
            (b, {**told, "parents": [a1, a2], "label": "b", "tolerant": True}),
        ]
        assert all(row.deliveries is None for row in found)

    def test_tags_are_those_of_the_enqueue(self, source: Source) -> None:
        (tagged,) = put(1, name="a", tags={"customer": 7, "eu": True})
        others = [*put(1, name="a"), *put(1, name="a", tags={})]
        claim(10)
        found = {row.seq: row.tags for row in metrics.jobs(source.read()).collect()}
        assert json.loads(found.pop(tagged)) == {"customer": 7, "eu": True}
        assert found == dict.fromkeys(others)

    def test_from_jobs_to_gold(self, lake: Lake, source: Source) -> None:
        done, failed = start(node("a"), node("b", 0)), start(node("c"), node("d", 0), node("e", 1), name="")
        for _ in range(2):
            for job in claim(10):
                if job.data["label"] == "c":
                    engine.run(engine.release([Release(job.seq, job.token, failure=Failure("E", "no"))], NODE))
                else:
                    engine.run(engine.finish([Ending(job.seq, job.token)], NODE))
        pipeline.run(lake, source.options)
        found = {row.workflow: row for row in lake.read(lake.gold("workflows")).collect()}
        assert (found[done].name, found[done].state, found[done].steps) == ("nightly", "completed", 2)
        assert found[done].ended_at > found[done].started_at
        row = found[failed]
        assert (row.state, row.nodes, row.completed, row.failed, row.cancelled, row.steps) == ("failed", 3, 0, 1, 2, 1)
        path = lake.read(lake.gold("critical_paths")).where(f"workflow = '{done}'").orderBy("step").collect()
        assert [(step.label, step.task, step.queue) for step in path] == [
            ("a", "app.a", "work"),
            ("b", "app.b", "work"),
        ]
        assert path[0].ended_at == path[1].since <= path[1].claimed_at


#: When the nodes of a graph ended, and how.
Ends = dict[int, tuple[float | None, str]]


class Random(History):
    """Events of random graphs: layers, fans, retries, lost leases, jobs that fail, are cancelled or still run."""

    def __init__(self, seed: int = 5, workflows: int = 60) -> None:
        super().__init__()
        self.draw = random.Random(seed)
        self.nodes: list[dict[str, Any]] = []
        for number in range(workflows):
            self._workflow(f"w{number:02d}", 1_000.0 * number)
        self._job(None, next(self._seqs), 5.0, [], {})

    def event(self, seq: int, event: str, second: float, **fields: Any) -> None:
        self.queue = f"q{seq % 3}"
        super().event(seq, event, second, task=f"t{seq % 4}", **fields)

    def _workflow(self, name: str, begin: float) -> None:
        seqs = [next(self._seqs) for _ in range(self.draw.randrange(1, 25))]
        # Numbers go by queue: parents may have higher ones than their children.
        self.draw.shuffle(seqs)
        ends: Ends = {}
        for place, seq in enumerate(seqs):
            parents = sorted(self.draw.sample(seqs[:place], min(place, self.draw.randrange(4))))
            self._job(name, seq, begin, parents, ends)

    def _job(self, workflow: str | None, seq: int, begin: float, parents: list[int], ends: Ends) -> None:
        draw = self.draw.random
        tolerant = draw() < 0.1
        self.event(seq, "enqueued", begin)
        if workflow is not None:
            told = {"workflow": workflow, "name": workflow[:2], "parents": parents, "tolerant": tolerant, "label": ""}
            self.event(seq, "linked", begin, detail=told)
            self.nodes.append({"workflow": workflow, "seq": seq, "parents": parents, "tolerant": tolerant})
        before = [ends[parent] for parent in parents]
        ready = max([begin, *[end for end, _ in before if end is not None]])
        ends[seq] = (None, "open")
        if any(end is None for end, _ in before) or (not tolerant and any(state != "completed" for _, state in before)):
            return
        if draw() < 0.03:
            self.event(seq, "cancelled", ready + 1)
            ends[seq] = (ready + 1, "cancelled")
            return
        # Held by a limit for a while, then ready, then claimed: once or oftener.
        ready += self.draw.choice((0.0, 0.0, 7.5))
        while True:
            waited = round(self.draw.expovariate(0.2), 3)
            claimed, held = ready + waited, round(self.draw.expovariate(0.1), 3) + 0.001
            self.event(seq, "claimed", claimed, node="n", waited=waited)
            ready = claimed + held
            luck = draw()
            if luck < 0.02:
                return
            if luck < 0.2:
                unstarted = {"unstarted": True} if luck < 0.05 else None
                self.event(seq, "expired" if luck > 0.15 else "released", ready, node="n", detail=unstarted)
                ready += 3
                continue
            state = "failed" if luck < 0.23 else "completed"
            ran = round(held * 900) if draw() < 0.5 else None
            self.event(seq, "acked" if state == "completed" else state, ready, node="n", ran=ran)
            ends[seq] = (ready, state)
            return


#: The longest chain of any into each node, over all chains there are: its time is that of its steps together.
LONGEST = """
WITH RECURSIVE t AS (FROM nodes JOIN jobs USING (seq)), e AS (
    SELECT workflow, seq, unnest(parents) AS parent FROM t
), u AS (
    SELECT t.workflow, t.seq, t.ended_at, t.first_claimed_at, greatest(t.enqueued_at, max(p.ended_at)) AS since
    FROM t LEFT JOIN e USING (workflow, seq)
    LEFT JOIN t p ON p.seq = e.parent AND p.ended_at <= coalesce(t.first_claimed_at, t.ended_at)
    WHERE t.ended_at IS NOT NULL
    GROUP BY t.workflow, t.seq, t.ended_at, t.first_claimed_at, t.enqueued_at
), chains AS (
    SELECT workflow, seq, epoch_us(ended_at - since) AS took, first_claimed_at, 1 AS steps FROM u
    UNION ALL
    SELECT c.workflow, e.seq, c.took + epoch_us(u.ended_at - u.since), u.first_claimed_at, c.steps + 1
    FROM chains c JOIN e ON e.parent = c.seq JOIN u ON u.seq = e.seq
)
SELECT workflow, max(took) / 1e6 AS took FROM chains WHERE first_claimed_at IS NOT NULL GROUP BY workflow
"""


def test_recomputed(spark: SparkSession) -> None:
    history = Random()
    events = spark.createDataFrame(history.rows, SCHEMA)
    folded = metrics.fold(events).persist()
    attempts, jobs = metrics.attempts_of(folded).persist(), metrics.jobs_of(folded).persist()
    paths = metrics.workflow_paths(attempts, jobs).persist()
    found = {row.workflow: row for row in metrics.workflows(paths).collect()}
    steps: dict[str, list[Any]] = {}
    for step in metrics.critical_paths(paths).orderBy("workflow", "step").collect():
        steps.setdefault(step.workflow, []).append(step)
    told = {row.seq: row for row in jobs.collect()}
    tried: dict[int, list[Any]] = {seq: [] for seq in told}
    for one in attempts.collect():
        tried[one.seq].append(one)
    assert sum(row.workflow is None for row in told.values()) == 1
    duck = duckdb.connect()
    duck.register("jobs", jobs.select("seq", "enqueued_at", "first_claimed_at", "ended_at").toArrow())
    duck.register("nodes", pa.Table.from_pylist(history.nodes))
    longest = dict(duck.execute(LONGEST).fetchall())
    assert {name: round(sum(s.waited + s.ran for s in path), 6) for name, path in steps.items()} == {
        name: round(took, 6) for name, took in longest.items()
    }
    for name, row in found.items():
        nodes = {each["seq"]: each for each in history.nodes if each["workflow"] == name}
        states = {seq: plain(seq, nodes, told) for seq in nodes}
        counts = [list(states.values()).count(state) for state in ("completed", "failed", "cancelled", "open")]
        assert [row.nodes, row.completed, row.failed, row.cancelled] == [len(nodes), *counts[:3]]
        state = "running" if counts[3] else "failed" if counts[1] else "cancelled" if counts[2] else "completed"
        assert (row.state, row.ended_at is None) == (state, state == "running")
        for before, step in itertools.pairwise(steps.get(name, [])):
            assert before.seq in nodes[step.seq]["parents"]
            assert step.since == before.ended_at
        for step in steps.get(name, []):
            tries = tried[step.seq]
            assert step.ran == pytest.approx(
                sum(0 if one.unstarted else one.held if one.ran is None else one.ran for one in tries)
            )
            assert step.queued == pytest.approx(min(sum(one.waited for one in tries), step.waited))
    assert {row.state for row in found.values()} == {"running", "completed", "failed", "cancelled"}
    assert max(len(path) for path in steps.values()) > 6


def plain(seq: int, nodes: dict[int, dict[str, Any]], told: dict[int, Any]) -> str:
    """The state of a node: what will not start because of a parent is cancelled."""
    job = told[seq]
    state = {"dead": "failed", "redriven": "cancelled"}.get(job.state, str(job.state))
    if state != "open" or job.first_claimed_at is not None or nodes[seq]["tolerant"]:
        return state
    stuck = any(plain(parent, nodes, told) in {"failed", "cancelled"} for parent in nodes[seq]["parents"])
    return "cancelled" if stuck else "open"
