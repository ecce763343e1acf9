"""Queries as projects write them, each against a recomputation in Python, on random jobs."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import pytest
from django.db.models import Avg, Count, Exists, F, IntegerField, Max, Min, OuterRef, Prefetch, Q, Subquery, Sum
from django.db.models.functions import Cast, TruncHour

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, LeasedJob, Limited, LimitValues, NewJob, Release
from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import Attempt, DeadLetter, EventKind, Job, JobEvent, JobResult, Queue
from tests.engine.helpers import claim, make

pytestmark = pytest.mark.django_db

SEEDS = range(20)
TASKS = ("shop.tasks.charge", "shop.tasks.mail", "shop.tasks.pack")
ERRORS = ("KeyError", "ValueError")
#: In this order: what was made ready before would be claimed.
FATES = ("completed", "failed", "dead", "leased", "retried", "waiting", "delayed", "ready", "gone")
ONE = LimitValues("customer", concurrency=1)
#: Longer than the test's clock goes, shorter than leases are.
DELAY_MS = 60_000_000


class Row(NamedTuple):
    pk: int
    queue: str
    state: str
    task: str
    order: int
    arg: bool
    ok: bool | None
    priority: int
    key: str | None
    tag: str
    worker: str | None
    error: str | None
    attempts: int
    enqueued_at: datetime


class World:
    """Random jobs of two queues, and what they must look like."""

    def __init__(self, seed: int, clock: Clock) -> None:
        self.random, self.clock = Random(seed), clock
        self.rows: list[Row] = []
        for name in ("mail", "post"):
            make(name, result_ttl_ms=3_600_000, exhaust_at="release", dead_letter="self")
        for fate in FATES:
            for queue in ("mail", "post"):
                self._enqueue(queue, fate, self.random.randint(1, 3))
                clock.advance(seconds=self.random.randint(1, 90))

    def _enqueue(self, queue: str, fate: str, count: int) -> None:
        random, made = self.random, {}
        # The first of a key takes its slot, and is made to end.
        for number in range(count + (fate == "waiting")):
            order, ok, key = random.randint(1, 4), random.random() < 0.5, f"{queue}-{fate}-{number}"
            new = NewJob(
                data={"args": [ok], "kwargs": {"order_id": order, "lines": [{"n": order}, 1.5]}},
                name=random.choice(TASKS), priority=random.randint(0, 9) if fate != "waiting" else 5,
                key=key if random.random() < 0.5 else None, tag=random.choice("ab"),
                max_deliveries=1 if fate == "dead" else 5, delay_ms=DELAY_MS if fate == "delayed" else 0,
                limit=Limited(key.rpartition("-")[0], ONE) if fate == "waiting" else None, meta={"by": queue},
            )  # fmt: skip
            ((answer,)) = engine.run(engine.enqueue(queue, [new]))
            made[answer.seq] = (new, order, ok)
        node, error = random.choice(["web-1:1", "web-2:7"]), random.choice(ERRORS)
        if fate == "gone":
            engine.run(engine.cancel(queue, seqs=list(made)))
            return
        jobs: list[LeasedJob] = []
        if fate not in ("ready", "delayed"):
            jobs = claim(len(made), queue=queue, node=node, lease_ms=86_400_000)
        for job in jobs:
            failure = Failure(error, f"no {job.seq}")
            if fate == "completed":
                engine.run(engine.finish([Ending(job.seq, result={"ok": made[job.seq][2], "seq": job.seq})], node))
            elif fate == "failed":
                engine.run(engine.finish([Ending(job.seq, failure=failure)], node))
            elif fate in ("dead", "retried"):
                engine.run(engine.release([Release(job.seq, failure=failure, delay_ms=DELAY_MS)], node))
        for seq, (new, order, ok) in made.items():
            held = fate == "waiting" and any(job.seq == seq for job in jobs)
            broken = fate in ("failed", "dead", "retried")
            state = "leased" if held else "delayed" if fate == "retried" else fate
            worker = node if held or fate in ("completed", "failed", "leased") else None
            self.rows.append(Row(
                seq, queue, state, str(new.name), order, ok, ok if fate == "completed" else None, new.priority or 0,
                new.key, str(new.tag), worker, error if broken else None, int(broken), self.clock.now,
            ))  # fmt: skip

    def pks(self, wanted: Callable[[Row], object]) -> list[int]:
        return sorted(row.pk for row in self.rows if wanted(row))


Query = tuple[Callable[[World], Any], Callable[[World], Any]]


def jobs(ask: Callable[[World], Any], wanted: Callable[..., object]) -> Query:
    """A query whose rows are those that a predicate of the row, or of the row and the world, picks."""
    all_of = wanted.__code__.co_argcount == 2
    return (
        lambda w: sorted(ask(w).values_list("pk", flat=True)),
        lambda w: w.pks(lambda row: wanted(row, w) if all_of else wanted(row)),
    )


#: As their results say it, from 1 on.
ENDED = ("completed", "failed", "cancelled")


def of(*tests: Q, **lookups: object) -> Callable[[World], Any]:
    return lambda w: Job.objects.filter(*tests, **lookups)


def asked(state: str) -> Callable[[World], Any]:
    return lambda w: getattr(Job.objects, state)()


def is_in(*states: str) -> Callable[[Row], bool]:
    return lambda r: r.state in states


def ends() -> Any:
    return JobResult.objects.all()


def last_attempt() -> Any:
    return Attempt.objects.filter(job=OuterRef("pk")).order_by("-pk").values("error_type")[:1]


QUERIES: dict[str, Query] = {
    "all": jobs(lambda w: Job.objects.all(), lambda r: True),
    "by number": jobs(lambda w: Job.objects.filter(pk=w.rows[0].pk), lambda r, w: r is w.rows[0]),
    **{state: jobs(asked(state), is_in(state)) for state in ("ready", "leased", "delayed", "waiting", "dead", *ENDED)},
    "finished": jobs(asked("finished"), is_in(*ENDED)),
    "not finished": jobs(lambda w: Job.objects.exclude(state__in=ENDED), lambda r: r.state not in ENDED),
    "states": jobs(of(state__in=["ready", "dead"]), is_in("ready", "dead")),
    "two queries": jobs(lambda w: Job.objects.ready() | Job.objects.delayed(), is_in("ready", "delayed")),
    "in a queue": jobs(lambda w: Job.objects.in_queue("mail"), lambda r: r.queue == "mail"),
    "by the name of a queue": jobs(of(queue__name="post"), lambda r: r.queue == "post"),
    "dead of a queue": jobs(
        lambda w: Queue.objects.get(name="mail").jobs.dead(), lambda r: (r.queue, r.state) == ("mail", "dead")
    ),
    "of a task": jobs(lambda w: Job.objects.for_task(TASKS[0]), lambda r: r.task == TASKS[0]),
    "of some tasks": jobs(of(task__endswith="mail"), lambda r: r.task == TASKS[1]),
    "by key": jobs(of(key="mail-ready-0"), lambda r: r.key == "mail-ready-0"),
    "by keys": jobs(of(key__in=["mail-ready-0", "post-dead-0"]), lambda r: r.key in ("mail-ready-0", "post-dead-0")),
    "by the beginning of a key": jobs(of(key__startswith="post-"), lambda r: (r.key or "").startswith("post-")),
    "without a key": jobs(of(key=None), lambda r: r.key is None),
    "by tag": jobs(
        lambda w: Job.objects.filter(tag="a").exclude(state="ready"), lambda r: r.tag == "a" and r.state != "ready"
    ),
    "priorities": jobs(of(priority__range=(3, 6)), lambda r: 3 <= r.priority <= 6),
    "of a worker": jobs(
        lambda w: Job.objects.leased().filter(worker="web-1:1"), lambda r: (r.state, r.worker) == ("leased", "web-1:1")
    ),
    "of the last minutes": jobs(
        lambda w: Job.objects.filter(enqueued_at__gt=w.clock.now - timedelta(minutes=5)),
        lambda r, w: r.enqueued_at > w.clock.now - timedelta(minutes=5),
    ),
    "by an error": jobs(of(error_type="KeyError"), lambda r: r.error == "KeyError"),
    "by the text of an error": jobs(of(error__contains="no "), lambda r: r.error),
    "by an argument": jobs(of(kwargs__order_id=2), lambda r: r.order == 2),
    "by arguments": jobs(of(kwargs__order_id__gte=2, args__0=True), lambda r: r.order >= 2 and r.arg),
    "deep in an argument": jobs(of(kwargs__lines__0__n=3), lambda r: r.order == 3),
    "what contains": jobs(of(kwargs__contains={"order_id": 1}), lambda r: r.order == 1),
    "by meta": jobs(of(meta__by="post"), lambda r: r.queue == "post"),
    "by a result": jobs(of(result__result__ok=True), lambda r: r.ok),
    "by the state of a result": jobs(of(result__state=2), is_in("failed")),
    "results": (
        lambda w: sorted(JobResult.objects.filter(result__ok=False).values_list("job__pk", flat=True)),
        lambda w: w.pks(lambda r: r.ok is False),
    ),
    "without a result": jobs(of(result=None), lambda r: r.state not in ENDED),
    "with a dead letter": jobs(lambda w: Job.objects.exclude(dead_letter__isnull=True), is_in("dead")),
    "of a result, or of none": jobs(
        of(Q(result=None) | Q(result__result__ok=True)), lambda r: r.state not in ENDED or r.ok
    ),
    "dead letters by their job": (
        lambda w: sorted(DeadLetter.objects.filter(job__task=TASKS[1]).values_list("pk", flat=True)),
        lambda w: w.pks(lambda r: r.state == "dead" and r.task == TASKS[1]),
    ),
    "attempts by their job": (
        lambda w: sorted(Attempt.objects.filter(job__queue__name="mail").values_list("seq", flat=True)),
        lambda w: w.pks(lambda r: r.attempts and r.queue == "mail"),
    ),
    "those that failed before": jobs(
        lambda w: Job.objects.filter(Exists(Attempt.objects.filter(seq=OuterRef("pk"))), state="delayed"),
        lambda r: r.attempts and r.state == "delayed",
    ),
    "queues with dead letters": (
        lambda w: sorted(Queue.objects.filter(jobs__state="dead").distinct().values_list("name", flat=True)),
        lambda w: sorted({row.queue for row in w.rows if row.state == "dead"}),
    ),
    "jobs of each state": (
        lambda w: dict(Job.objects.values_list("state").annotate(Count("pk"))),
        lambda w: dict(Counter(row.state for row in w.rows)),
    ),
    "jobs of each task in each queue": (
        lambda w: {
            (found["queue__name"], found["task"]): (found["n"], found["least"])
            for found in Job.objects.values("queue__name", "task").annotate(n=Count("pk"), least=Min("priority"))
        },
        lambda w: {
            place: (len(priorities), min(priorities))
            for place in {(row.queue, row.task) for row in w.rows}
            for priorities in [[row.priority for row in w.rows if (row.queue, row.task) == place]]
        },
    ),
    "jobs of each order": (
        lambda w: dict(Job.objects.values_list("kwargs__order_id").annotate(Count("pk"))),
        lambda w: dict(Counter(row.order for row in w.rows)),
    ),
    "a page": (
        lambda w: list(Job.objects.order_by("-pk").values_list("pk", flat=True)[2:7]),
        lambda w: w.pks(lambda r: True)[::-1][2:7],
    ),
    "by priority": (
        lambda w: list(Job.objects.order_by(F("priority").desc(), "pk").values_list("pk", flat=True)),
        lambda w: [row.pk for row in sorted(w.rows, key=lambda r: (-r.priority, r.pk))],
    ),
    "by the time of the end": (
        lambda w: [job.finished_at for job in Job.objects.in_queue("mail").failed().order_by("-finished_at")],
        lambda w: sorted((r.finished_at for r in Queue.objects.get(name="mail").results.filter(state=2)), reverse=True),
    ),
    "ended since": (
        lambda w: list(
            Job.objects.finished().filter(finished_at__gte=w.clock.now - timedelta(minutes=15))
            .order_by("finished_at", "pk").values_list("state", "pk")
        ),
        lambda w: [
            (ENDED[r.state - 1], r.pk) for r in sorted(ends(), key=lambda r: (r.finished_at, r.pk))
            if r.finished_at >= w.clock.now - timedelta(minutes=15)
        ],
    ),
    "the first of each queue": jobs(
        lambda w: Job.objects.filter(pk__in=[job.pk for job in Job.objects.order_by("queue", "pk").distinct("queue")]),
        lambda r, w: r.pk == min(each.pk for each in w.rows if each.queue == r.queue),
    ),
    "of two queries": jobs(
        lambda w: Job.objects.filter(pk__in=[job.pk for job in Job.objects.ready().union(Job.objects.dead())]),
        is_in("ready", "dead"),
    ),
    "with what they waited for": (
        lambda w: Job.objects.aggregate(waited=Sum(F("started_at") - F("enqueued_at")))["waited"],
        lambda w: sum((j.started_at - j.enqueued_at for j in Job.objects.all() if j.started_at), timedelta()),
    ),
    "ends of each hour": (
        lambda w: dict(Job.objects.finished().values_list(TruncHour("finished_at")).annotate(n=Count("pk")).order_by()),
        lambda w: dict(Counter(r.finished_at.replace(minute=0, second=0, microsecond=0) for r in ends())),
    ),
    "the last error of each": (
        lambda w: dict(Job.objects.annotate(last=Subquery(last_attempt())).values_list("pk", "last")),
        lambda w: {row.pk: row.error if row.attempts else None for row in w.rows},
    ),
    "dead of each queue": (
        lambda w: dict(Queue.objects.annotate(n=Count("jobs", Q(jobs__state="dead"))).values_list("name", "n")),
        lambda w: dict(Counter(row.queue for row in w.rows if row.state == "dead")),
    ),
    "a sum of arguments": (
        lambda w: Job.objects.aggregate(n=Sum(Cast("kwargs__order_id", IntegerField())))["n"],
        lambda w: sum(row.order for row in w.rows),
    ),
    "figures": (
        lambda w: Job.objects.aggregate(Max("enqueued_at"), Min("pk"), Avg("priority")),
        lambda w: {
            "enqueued_at__max": max(row.enqueued_at for row in w.rows),
            "pk__min": min(row.pk for row in w.rows),
            "priority__avg": pytest.approx(sum(row.priority for row in w.rows) / len(w.rows)),
        },
    ),
    "either": jobs(
        lambda w: Job.objects.filter(Q(state="dead") | Q(priority=9), queue__name="mail"),
        lambda r: (r.state == "dead" or r.priority == 9) and r.queue == "mail",
    ),
    "with what belongs to them": (
        lambda w: sorted(
            (job.pk, job.queue.name, len(job.events.all()) > 0, job.result is not None, job.dead_letter is not None)
            for job in Job.objects.select_related("queue", "result", "dead_letter").prefetch_related(
                Prefetch("events", JobEvent.objects.filter(kind=EventKind.ENQUEUED))
            )
        ),
        lambda w: sorted((r.pk, r.queue, True, r.state in ("completed", "failed"), r.state == "dead") for r in w.rows),
    ),
    "those that a key of a limit holds": jobs(
        lambda w: Job.objects.waiting_for("customer", "mail-waiting"),
        lambda r: (r.state, r.queue) == ("waiting", "mail"),
    ),
    "those that a limit holds": jobs(lambda w: Job.objects.waiting_for("customer"), is_in("waiting")),
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_rows(seed: int, clock: Clock) -> None:
    world = World(seed, clock)
    answers = {name: (ask(world), expected(world)) for name, (ask, expected) in QUERIES.items()}
    assert {name: both for name, both in answers.items() if both[0] != both[1]} == {}
    assert len(QUERIES) >= 40
