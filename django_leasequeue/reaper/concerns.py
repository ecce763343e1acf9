"""Warnings for the operator of a database: stuck queues, workers, duties and recurring tasks, and what to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import DateTimeField, F, FloatField, Func, Q, QuerySet, Value
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _

from ..engine import arrays, clock
from ..engine.clock import span
from ..engine.dead.filter import DeadFilter
from ..engine.jobs.pausing import PausedTask
from ..engine.limits import WORKER_LEASE
from ..engine.operation import Statements, operation
from ..engine.queues.stats import Counts, counts_by_id
from ..models import Job, JobStatus, RecurringTask, Worker
from ..sql.log_notes import waiting_text
from .leader import Leader

#: Queues of one statement.
PAGE = 500
#: Recurring tasks of one kind of trouble that are named.
SHOWN = 10
#: States of a job whose run has failed for good.
FAILED = (JobStatus.FAILED, JobStatus.DEAD)


#: Seconds that count as lately for new dead letters, and deaths that are counted of each time.
LATELY, MAX_DEATHS = 600, 10_000
#: A tenth of the bound deserves a word where it is so many times the pace of the hour before.
PACE = 3


class Bounds(NamedTuple):
    """When to warn: seconds, and of ``dead`` the jobs of a queue that die within ten minutes.

    ``unclaimed`` is for ready jobs that are not tasks.
    """

    waiting: int = 1_800
    lease: int = 6 * 3_600
    late: int = 60
    transaction: int = 900
    unclaimed: int = 300
    dead: int = 100


BOUNDS = Bounds()


class Concern(NamedTuple):
    """A warning: ``level`` is ``warning`` or ``error``; ``queue_id`` and ``seq`` name its queue and job.

    ``dead_letters`` is the filter of its dead letters, as a query string.
    """

    level: str
    text: str
    queue_id: int | None = None
    queue: str = ""
    seq: int | None = None
    dead_letters: str = ""


class Deaths(NamedTuple):
    """Jobs that died in a queue lately, and in the hour before; each counted up to ``MAX_DEATHS`` + 1."""

    queue_id: int
    died: int
    died_before: int

    def level(self, bounds: Bounds) -> str | None:
        """Return the level of a warning: an error from the bound on; ``None`` if it deserves none."""
        if self.died >= bounds.dead:
            return "error"
        usual = self.died_before * LATELY / 3_600
        return "warning" if self.died >= bounds.dead / 10 and self.died >= PACE * usual else None


class Health(NamedTuple):
    """Signs of trouble of a queue: ``waiting`` sessions listen; its oldest ready job is ``ready`` seconds old.

    ``tasks``: whether it holds tasks. ``deaths``: ``None`` where few jobs died lately.
    """

    queue_id: int
    workers: int
    waiting: int
    overdue: datetime | None
    overdue_seq: int | None
    old: datetime | None
    old_seq: int | None
    old_node: str | None
    floor_since: datetime | None
    tasks: bool
    ready: float | None
    deaths: Deaths | None


@operation
def read_deaths(queue_ids: Sequence[int] | None = None, bounds: Bounds = BOUNDS) -> Statements[list[Deaths]]:
    """Read in which queues (``None``: of all) many jobs died lately, those with most deaths first."""
    ids = None if queue_ids is None else arrays.integers(queue_ids)
    least = max(bounds.dead // 10, 1)
    rows = yield "dead_new", {"queues": ids, "recent": LATELY, "least": least, "cap": MAX_DEATHS}
    return [Deaths._make(row) for row in rows]


@operation
def read_health(queue_ids: Sequence[int], bounds: Bounds = BOUNDS) -> Statements[dict[int, Health]]:
    """Read signs of trouble of queues, by id."""
    ids = arrays.integers(queue_ids)
    rows = yield "queue_health", {"queues": ids, "silent": WORKER_LEASE, "old": bounds.lease}
    ready = {queue_id: age for queue_id, age, *_ in (yield "queue_ages", {"queues": ids})}
    deaths = {each.queue_id: each for each in (yield from read_deaths(queue_ids, bounds))}
    return {row[0]: Health._make((*row, ready.get(row[0]), deaths.get(row[0]))) for row in rows}


def of_server(
    leader: Leader | None,
    age: float | None,
    pid: int | None,
    application: str | None,
    above: int | None = None,
    bounds: Bounds = BOUNDS,
) -> list[Concern]:
    """Return the concerns about the reaper and the database.

    Its oldest transaction is ``age`` seconds old; ``above`` is the value of ``epoch.above_horizon``.
    """
    found = [] if above is None else [Concern("error", waiting_text(above))]
    if leader is None:
        text = _(
            "No reaper leads: nothing sweeps, samples or carries out operations. Start a worker or"
            " 'manage.py runreaper'."
        )
        found.append(Concern("error", text))
    else:
        for duty in leader.duties:
            if duty["late"]:
                text = _("The reaper's duty {duty} has not succeeded for {time}: {error} See the log of {reaper}.")
                facts = {"duty": duty["name"], "time": span(duty["succeeded"]), "reaper": leader.holder}
                found.append(Concern("error", text.format(error=duty["error"] or _("It has not run."), **facts)))
    if age is not None and age > bounds.transaction:
        text = _(
            "A transaction of {client} (pid {pid}) is open for {time}: PostgreSQL cannot clean up behind it, and floors"
            " wait for it. End it, or SELECT pg_terminate_backend({pid})."
        )
        client = application or _("an unnamed client")
        found.append(Concern("warning", text.format(client=client, pid=pid, time=span(age))))
    return found


def of_queue(counts: Counts, health: Health | None, now: datetime, bounds: Bounds = BOUNDS) -> list[Concern]:
    """Return the concerns about a queue."""
    name = f"{counts.project}/{counts.queue}" if counts.project else counts.queue
    found: list[Concern] = []

    def say(level: str, text: str, seq: int | None = None, dead_letters: str = "", **facts: object) -> None:
        text = text.format(queue=name, **facts)
        found.append(Concern(level, text, counts.queue_id, counts.queue, seq, dead_letters))

    if counts.paused_at is not None:
        text = _("{queue} has been paused for {time}: nothing is claimed from it.")
        say("warning", text, time=span(now - counts.paused_at))
    if health is None:
        return found
    if health.deaths is not None and (level := health.deaths.level(bounds)):
        died, before = (f"{min(n, MAX_DEATHS):,}{'+' * (n > MAX_DEATHS)}" for n in health.deaths[1:])
        query = DeadFilter(counts.project, counts.queue, since=now - timedelta(seconds=LATELY)).query()
        text = _("{number} jobs of {queue} died in the last 10 min, {before} in the hour before.")
        say(level, text, dead_letters=query, number=died, before=before)
    polled = None if counts.claimed_at is None else (now - counts.claimed_at).total_seconds()
    polls = not health.tasks and polled is not None and polled <= bounds.unclaimed
    served = counts.paused_at is not None or health.workers or health.waiting or counts.in_flight or polls
    if counts.type == "queue" and counts.ready and not served:
        if health.tasks:
            project = _option("project", counts.project) if counts.project else ""
            start = f"manage.py runworker{_option('queues', counts.queue)}{project}"
            say("error", _("No worker listens to {queue}, and tasks are ready. Start `{command}`."), command=start)
        else:
            last = _("never") if polled is None else _("{time} ago").format(time=span(polled))
            text = _(
                "Nobody claims from {queue} (last claim: {time}), and jobs are ready. They are no tasks: start their"
                " consumer, which uses Queue, Consumer, HTTP or runworker --handler."
            )
            say("error", text, time=last)
    elif health.ready is not None and health.ready > bounds.waiting and counts.paused_at is None:
        text = _(
            "Jobs of {queue} have been ready for {time}: its workers do not keep up. Start more of them, or look at"
            " what they run."
        )
        say("error", text, time=span(health.ready))
    if health.overdue is not None:
        text = _("A lease of {queue} expired {time} ago and was not swept: is a reaper running?")
        say("error", text, health.overdue_seq, time=span(now - health.overdue))
    if health.old is not None:
        text = _("A lease of {queue} is {time} old, held by {worker}: is the job stuck?")
        say("warning", text, health.old_seq, time=span(now - health.old), worker=health.old_node)
    if health.floor_since is not None:
        text = _(
            "A floor of {queue} has not moved for {time}: no reaper runs, or a long transaction holds it. Claims read"
            " dead index entries."
        )
        say("warning", text, time=span(now - health.floor_since))
    return found


@operation
def of_queues(bounds: Bounds = BOUNDS, most: int = PAGE) -> Statements[list[Concern]]:
    """Return the problems of the oldest ``most`` queues of a database."""
    found: list[Concern] = []
    ids = [0]
    for _page in range(0, most, PAGE):
        ids = [queue_id for (queue_id,) in (yield "queue_page", {"after": ids[-1], "size": PAGE})]
        if not ids:
            break
        health = yield from read_health(ids, bounds)
        for queue_id, each in (yield from counts_by_id(ids, cap=1)).items():
            found += of_queue(each, health.get(queue_id), clock.now(), bounds)
    return found


def _option(name: str, value: str) -> str:
    """Return an option of a command, quoted for a shell."""
    return f" --{name}{'=' if value.startswith('-') else ' '}{shlex.quote(value)}"


def of_workers(workers: Iterable[Worker]) -> list[Concern]:
    """Return the concerns about workers (of ``seen``): silent ones, and those with a suspect alone."""
    gone: list[Concern] = []
    alone: list[Concern] = []
    for worker in workers:
        if worker.silent > WORKER_LEASE:
            text = _("Worker {worker} was not seen for {time}.")
            gone.append(Concern("warning", text.format(worker=worker.node, time=span(worker.silent))))
            continue
        for job in worker.running:
            if job.get("suspect") == "alone":
                since = span(job["seconds"] + worker.silent)
                text = _(
                    "Worker {worker} has run a suspect for {time} (job {job} of {queue}) and starts nothing else: it"
                    " has no process of its own for it."
                ).format(worker=worker.node, time=since, job=job["seq"], queue=job["queue"])
                alone.append(Concern("warning", text, None, job["queue"], job["seq"]))
    return [*gone[:20], *alone[:20]]


def of_paused(paused: list[PausedTask]) -> list[Concern]:
    """Return the concerns about paused tasks."""
    found = []
    for each in paused:
        text = _("The task {task} has been paused for {time}: none of its jobs starts.")
        if each.paused_by:
            text = _("The task {task} has been paused by {user} for {time}: none of its jobs starts.")
        task = f"{each.name} ({each.project})" if each.project else each.name
        found.append(Concern("warning", text.format(task=task, user=each.paused_by, time=span(each.seconds))))
    return found


def seconds_since(field: str) -> Func:
    """Return an expression: the seconds since the time in a field, by the engine's clock."""
    now = Coalesce(Value(clock.current(), DateTimeField()), Func(function="clock_timestamp"))
    return Func(
        now,
        F(field),
        template="extract(epoch FROM %(expressions)s)::float8",
        arg_joiner=" - ",
        output_field=FloatField(),
    )


def seen(workers: QuerySet[Worker]) -> QuerySet[Worker]:
    """Return workers, the last seen first, with ``silent`` (seconds since then) and ``gone`` (longer than a lease)."""
    found = workers.annotate(silent=seconds_since("seen_at"))  # type: ignore[no-redef]  # as the model declares it
    return found.annotate(gone=Q(silent__gt=WORKER_LEASE)).order_by("-seen_at")  # type: ignore[no-redef]


def recurring(using: str) -> QuerySet[RecurringTask]:
    """Return the recurring tasks, the next due first, with ``late``: seconds overdue (below 0: not yet)."""
    found = RecurringTask.objects.using(using).annotate(late=seconds_since("next_tick_at"))  # type: ignore[no-redef]
    return found.order_by(F("next_tick_at").asc(nulls_last=True), "name")


def recurring_problems(using: str, bounds: Bounds = BOUNDS) -> list[str]:
    """Return the problems of recurring tasks in a database: a few of each kind."""
    enabled = recurring(using).filter(enabled=True, ended_at=None)
    looked_at = enabled.filter(~Q(last_error="") | Q(late__gt=bounds.late) | Q(last_seq__isnull=False))
    tasks = list(looked_at.order_by(F("last_error").desc(), F("next_tick_at").asc(nulls_last=True))[:PAGE])
    failing = [task for task in tasks if task.last_error][:SHOWN]
    late = [task for task in tasks if not task.last_error and (task.late or 0) > bounds.late][:SHOWN]
    text = _("Recurring task {task} was not enqueued: {error}")
    found = [text.format(task=task.name, error=task.last_error) for task in failing]
    text = _("Recurring task {task} is {time} overdue: is a reaper running, and can its schedule and task be read?")
    found += [text.format(task=task.name, time=span(task.late)) for task in late]
    last = {task.last_seq: task for task in tasks if task.last_seq is not None}
    failed = Job.objects.using(using).filter(seq__in=list(last), state__in=FAILED).only("seq", "state", "task")
    for job in failed[:SHOWN] if last else ():
        task = last[job.seq]
        if job.task == task.task:
            text = _("The last run of recurring task {task} failed: job {job} is {state}.")
            found.append(text.format(task=task.name, job=job.seq, state=_(job.state)))
    return found
