"""What the pages ask of the database beside the engine's own operations. Every read is bounded."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

from django.db import connections, transaction
from django.db.models import Case, Func, IntegerField, Model, QuerySet, When
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.middleware.csrf import rotate_token
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

from .. import conf, engine
from ..conf.process import Memory
from ..engine import DjangoExecutor, search_index, store
from ..engine.dead.filter import PayloadTest
from ..engine.epoch import above_horizon
from ..engine.jobs.cancel import NOTE
from ..engine.limits import MAX_SEQ
from ..engine.operation import Operation, Statements, operation, steady
from ..engine.queues import routing
from ..enums import EventKind, QueueType
from ..models import Attempt, DeadLetter, Job, JobEvent, JobResult, JobStep, Queue, StoredJob, Worker
from ..models.base import AsWritten
from ..models.job import FINISHED
from ..reaper import concerns
from ..reaper.leader import Leader
from ..templatetags.leasequeue_admin import count

M = TypeVar("M", bound=Model)
T = TypeVar("T")

#: Bytes of a JSON value that a page shows; of larger ones it tells the size.
MAX_JSON = 262_144
#: Steps on the page of a job, and bytes of a value that is shown.
MAX_STEPS, MAX_STEP_BYTES = 200, 4_096
#: Events of a job that its page shows: the newest.
MAX_EVENTS = 1_000
MAX_WORKERS = 200
#: Names of queues that a form offers.
MAX_NAMES = 1_000
#: Projects whose samples are added up.
MAX_PROJECTS = 1_000
#: JSON columns of what was enqueued.
_JSON = ("data", "meta", "progress")
#: Time between clocks: events of a job are looked for so long before and after it.
_SLACK = timedelta(minutes=1)


class _Bytes(Func):
    function, output_field = "octet_length", IntegerField()


class Part(NamedTuple):
    """A value of a job: its JSON (``None``: none, or too long), the bytes of that, and those of its binary part."""

    label: str
    text: str | None
    size: int | None
    body: int | None = None


class SeenJob(NamedTuple):
    """A job as its page shows it; a record of a log is a ``Job`` with the state ``record``."""

    job: Job
    stored: StoredJob
    dead_letter: DeadLetter | None
    source: Queue | None
    errors: list[Attempt]
    parts: list[Part]

    @property
    def seq(self) -> int:
        return self.job.seq

    @property
    def state(self) -> str:
        return self.job.state

    @property
    def queue(self) -> Queue:
        return self.stored.queue

    @property
    def live(self) -> bool:
        return self.state not in FINISHED or self.job.finished_at is None

    @property
    def failure(self) -> DeadLetter | Job:
        """The row with its last error: a moved dead letter has an error of its own."""
        return self.dead_letter or self.job


#: The parameter of an address that chooses a database, and the cookie that keeps the choice.
SWITCH = "leasequeue_database"
_chosen: ContextVar[str] = ContextVar("leasequeue_database", default="")


def alias() -> str:
    """Return the database whose queues the pages show."""
    chosen = _chosen.get()
    return chosen if chosen in routing.aliases() else conf.settings.DATABASE


def on_chosen_database(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return a page of the database that the browser has chosen with a link of the navigation."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        known = routing.aliases()
        if (wanted := request.GET.get(SWITCH)) in known:
            redirect = HttpResponseRedirect(request.path)
            redirect.set_cookie(SWITCH, wanted, httponly=True, samesite="Lax")
            # Forms of pages that are still open show jobs of the other database: they are not taken any more.
            rotate_token(request)
            return redirect
        kept = request.COOKIES.get(SWITCH)
        _chosen.set(kept if kept in known else known[0])
        return view(request, *args, **kwargs)

    return answer


def instance(model: type[M], pk: int) -> M | None:
    """Return the row of a model with this key, ``None`` if it is not there."""
    return model._default_manager.using(alias()).filter(pk=pk).first() if pk <= MAX_SEQ else None


def run(work: Operation[T]) -> T:
    """Run an operation on the database of the queues."""
    return engine.run(work, using=alias())


def read(inner: Operation[T]) -> T:
    """Run an operation that only reads, steadily."""
    return run(steady(inner))


def read_log(inner: Operation[T]) -> T:
    """Run an operation that only reads the lease log, steadily."""
    return run(steady(inner, bitmaps=True))


@contextmanager
def steadily(*, log: bool = False) -> Iterator[None]:
    """Read through indexes in this block, whatever the planner knows of the tables: ``read`` for querysets."""
    with transaction.atomic(using=alias()):
        executor = DjangoExecutor(alias())
        before = executor.fetch("plans", {"seqscan": "off", "bitmapscan": "on" if log else "off", "jit": "off"})[0]
        yield
        executor.fetch("plans", dict(zip(("seqscan", "bitmapscan", "jit"), before, strict=False)))


def read_job(seq: int) -> SeenJob | None:
    """Read a job, live or ended and remembered, or a record, by its number; ``None`` if it is neither."""
    if seq > MAX_SEQ:
        return None
    with steadily():
        plain = StoredJob.objects.using(alias()).select_related("queue").defer(*_JSON, "body").filter(pk=seq)
        stored: Any = _sized(plain, *_JSON, body="body").first()
        if stored is None:
            return None
        jobs = Job.objects.using(alias()).filter(pk=seq).defer(*_JSON, "args", "kwargs")
        job = jobs.first() or Job(
            seq=seq, queue=stored.queue, state="record", task=stored.name, tag=stored.tag, key=stored.key,
            enqueued_at=stored.created_at, expires_at=stored.expires_at, origin=stored.origin, deliveries=0,
        )  # fmt: skip
        if job.state == "record" and stored.queue.type != QueueType.LOG:
            return None  # it ended since it was read
        parts = [Part(name, *_value(stored, name), stored.body_bytes if name == "data" else None) for name in _JSON]
        results = JobResult.objects.using(alias()).filter(pk=seq).defer("result", "result_body")
        ended = _sized(results, "result", body="result_body")
        parts += [Part("result", *_value(result, "result"), result.body_bytes) for result in ended]
        return SeenJob(
            job,
            stored,
            DeadLetter.objects.using(alias()).filter(pk=seq).first(),
            Queue.objects.using(alias()).filter(pk=stored.source_queue).first(),
            list(Attempt.objects.using(alias()).filter(seq=seq).order_by("-id")[:20])[::-1],
            [with_storage(part) for part in parts],
        )


def _sized(rows: QuerySet[Any], *names: str, body: str) -> QuerySet[Any]:
    """Read the sizes of values, and those that are not too long as text: Python does not read all that json holds."""
    sizes = {f"{name}_bytes": _Bytes(AsWritten(name)) for name in names}
    texts = {f"{name}_text": Case(When(**{f"{name}_bytes__lte": MAX_JSON}, then=AsWritten(name))) for name in names}
    return rows.annotate(**sizes, **texts, body_bytes=_Bytes(body))


def _value(row: Any, name: str) -> tuple[str | None, int | None]:
    return getattr(row, f"{name}_text"), getattr(row, f"{name}_bytes")


def with_storage(part: Part) -> Part:
    """Return a value with what stands in a storage; what cannot be had is shown as ``{"$lost": why}``."""
    if part.text is None or not store.is_reference(part.text):
        return part
    kept = store.parse(part.text)
    size = len(kept.inline) if kept.inline else None
    part = Part(part.label, kept.inline, size, part.body if kept.body is None else kept.body.size)
    if kept.data is None:
        return part
    part = part._replace(size=kept.data.size)
    if kept.data.size > MAX_JSON:
        return part
    (content,) = store.read([kept.data])
    return part._replace(text=content.decode() if isinstance(content, bytes) else json.dumps({"$lost": str(content)}))


def read_events(seq: int, seen: SeenJob | None = None) -> list[JobEvent]:
    """Read what happened to a job, oldest first, at most the newest ``MAX_EVENTS``, within the times of the job."""
    if seq > MAX_SEQ:
        return []
    found = JobEvent.objects.using(alias()).filter(seq=seq)
    if seen is not None:
        found = found.filter(occurred_at__gte=seen.stored.created_at - _SLACK)
        if not seen.live and seen.job.finished_at is not None:
            found = found.filter(occurred_at__lte=seen.job.finished_at + _SLACK)
    with steadily(log=True):
        events = list(found.order_by("-txid", "-pk")[:MAX_EVENTS])[::-1]
    for event in events:
        event.detail = event.detail or {}
        if event.kind == EventKind.LINKED:
            # The row has the parents of all its jobs: those of this one are counted.
            event.detail["parents"] = len(event.detail["parents"][event.pk % 1024])
    return events


def read_queues(size: int, prefix: str = "", after: tuple[str, str] | None = None) -> list[Queue]:
    """Read queues by project and name, a page at a time: those behind ``after``, the last of the page before."""
    found = Queue.objects.using(alias()).filter(name__startswith=prefix).order_by("project", "name")
    if after is None:
        return list(found[:size])
    project, name = after
    page = list(found.filter(project=project, name__gt=name)[:size])
    return page + list(found.filter(project__gt=project)[: size - len(page)])


def read_workers(nodes: Sequence[str] | None = None) -> list[Worker]:
    """Read workers, the last seen first: at most ``MAX_WORKERS``, or those with these names."""
    found = concerns.seen(Worker.objects.using(alias()))
    return list((found if nodes is None else found.filter(node__in=nodes))[:MAX_WORKERS])


def read_steps(seq: int) -> list[Any]:
    """Read the first ``MAX_STEPS`` steps of a job, in their order, with ``part``, the value."""
    steps = JobStep.objects.using(alias()).filter(seq=seq).defer("value").order_by("number", "name")
    text = Case(When(size__lte=MAX_STEP_BYTES, then=AsWritten("value")))
    found: list[Any] = list(steps.annotate(size=_Bytes(AsWritten("value")), text=text)[:MAX_STEPS])
    for step in found:
        step.part = Part(step.name, step.text, step.size)
        step.label = step.name
        if step.name == NOTE:
            step.label = _("what is undone")
        elif step.name.startswith(f"{NOTE} "):
            step.label = _("undo of {step}").format(step=step.name.removeprefix(f"{NOTE} "))
    return found


def find_jobs(key: str) -> list[Job]:
    """Find the newest jobs of a key, in every project."""
    with steadily():
        found = Job.objects.using(alias()).filter(key=key).select_related("queue").defer(*_JSON, "args", "kwargs")
        return list(found.order_by("-pk")[:50])


def indexed(tests: Sequence[PayloadTest]) -> list[int] | None:
    """Return the jobs that these tests may want, by an index; ``None`` if none answers, or there are too many."""
    if not tests:
        return None
    with steadily(log=True), connections[alias()].cursor() as cursor:
        paths = [each.path for each in run(search_index.search_indexes()) if each.path and each.valid]
        asked = search_index.question(tests, paths)
        if asked is None:
            return None
        cursor.execute(asked.as_string(cursor.connection))
        found = [seq for (seq,) in cursor.fetchall()]
    return found if len(found) <= search_index.MAX_FOUND else None


def queue_names(project: str | None = None) -> list[str]:
    """Return the first names of queues, which a form offers: of a project, or of all with their projects in front."""
    found = Queue.objects.using(alias()).order_by("project", "name").values_list("project", "name")
    if project is not None:
        found = found.filter(project=project)

    def make() -> list[str]:
        return [f"{of}/{name}" if of and project is None else name for of, name in found[:MAX_NAMES]]

    return kept(f"queues of {project!r}", make)


def offered() -> tuple[list[str], list[str]]:
    """Return the names of tasks, and the tags, of the newest jobs: what a form offers."""

    def make() -> tuple[list[str], list[str]]:
        newest = list(StoredJob.objects.using(alias()).order_by("-pk").values_list("name", "tag")[:2_000])
        return sorted({task for task, _ in newest if task}), sorted({tag for _, tag in newest if tag})

    return kept("offered", make)


def some_jobs(states: Sequence[str], size: int, worker: str = "") -> list[Job]:
    """Read a few jobs in one of these states (and of this worker), of every queue and in no order."""
    with steadily():
        found = Job.objects.using(alias()).select_related("queue").defer(*_JSON, "args", "kwargs")
        found = found.filter(worker=worker) if worker else found
        return list((found.filter(state__in=states) if len(states) > 1 else found.filter(state=states[0]))[:size])


#: Seconds for which a process keeps what holds for a whole database.
KEPT = 10.0
_kept: Memory[tuple[str, str, str | None], tuple[float, Any]] = Memory()


def kept(what: str, make: Callable[[], T]) -> T:
    """Return what holds for the whole database, in a language; this process reads it every ``KEPT`` seconds at most."""
    key, now = (what, alias(), get_language()), time.monotonic()
    if key not in _kept or now - _kept[key][0] > KEPT:
        _kept[key] = (now, make())
    return cast("T", _kept[key][1])


def server() -> tuple[str, list[concerns.Concern]]:
    """Return the server's version, and the problems of its oldest transaction, its epoch and the reaper."""
    return kept("server", lambda: read(read_server()))


def totals() -> list[engine.Totals]:
    """Return the sums of the newest samples of each project."""
    return kept("totals", lambda: read(engine.totals(size=MAX_PROJECTS)))


def deadly() -> list[int]:
    """Return the queues in which many jobs died lately."""
    return kept("deadly", lambda: [each.queue_id for each in read(concerns.read_deaths())])


def figures() -> dict[str, str]:
    """Return the figures of the navigation by the page that they stand at, of the newest samples."""

    def make() -> dict[str, str]:
        alerts = [*server()[1], *concerns.recurring_problems(alias()), *concerns.of_workers(read_workers())]
        of_queues = read(concerns.of_queues())
        alerts += of_queues
        text = ngettext("{number} alert", "{number} alerts", len(alerts))
        sums = {name: sum(getattr(each, name) for each in totals()) for name in ("ready", "in_flight", "dead")}
        return {
            "leasequeue_overview": text.format(number=len(alerts)) if alerts else "",
            "leasequeue_deadletters": count(sums["dead"]),
            "leasequeue_job_changelist": _("{ready} waiting, {running} running").format(
                ready=count(sums["ready"]), running=count(sums["in_flight"])
            ),
        }

    return kept("figures", make)


@operation
def read_server() -> Statements[tuple[str, list[concerns.Concern]]]:
    """Read the server's version, and what to say of its oldest transaction, its epoch and the reaper."""
    ((version, age, pid, application, *_),) = yield "server_status", {}
    leader = Leader.of((yield "reaper_look", {}))
    above = yield from above_horizon()
    return version, concerns.of_server(leader, age, pid, application or None, above)


@operation
def ask_worker_to_stop(worker_id: int) -> Statements[bool]:
    """Ask a worker to stop; return whether it is there and had not been asked before."""
    rows = yield "admin/worker_stop", {"id": worker_id}
    return any(not asked for _, asked in rows)
