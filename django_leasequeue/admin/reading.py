"""What the pages ask of the database beside the engine's own operations. Every read is bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import Any, NamedTuple, TypeVar

from django.db.models import Model
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.middleware.csrf import rotate_token

from .. import conf, engine
from ..engine import codec
from ..engine.flow.limits import WAITING
from ..engine.limits import MAX_SEQ
from ..engine.operation import Operation, Steps, operation
from ..engine.plans import steady
from ..engine.queues import routing
from ..enums import EventKind, JobState, ResultState
from ..models import Queue, Worker
from ..reaper.leader import LOCK
from ..reaper.status import seen
from .payload import shown_steps

M = TypeVar("M", bound=Model)
T = TypeVar("T")

#: Bytes of a JSON value that a page shows; of larger ones it tells the size.
MAX_JSON = 262_144
#: Steps on the page of a job, and bytes of a value that is shown.
MAX_STEPS, MAX_STEP_BYTES = 200, 4_096
#: Events of a job that its page shows: the newest.
MAX_EVENTS = 1_000
#: Workers of the page.
MAX_WORKERS = 200


class JobFacts(NamedTuple):
    """One job as its page shows it, live or ended. Sizes are in bytes; too long JSON is ``None``."""

    seq: int
    queue_id: int
    project: str | None
    queue: str | None
    state_number: int
    key: str | None
    name: str | None
    tag: str | None
    origin: str | None
    deliveries: int
    max_deliveries: int | None
    node: str | None
    claim: int | None
    created_at: datetime
    first_claimed_at: datetime | None
    claimed_at: datetime | None
    deadline: datetime | None
    available_at: datetime | None
    expires_at: datetime | None
    dead_at: datetime | None
    finished_at: datetime | None
    rank: int
    source_queue: int | None
    source_seq: int | None
    source_name: str | None
    source_project: str | None
    source_id: int | None
    error_type: str | None
    error: str | None
    fingerprint: str | None
    data_bytes: int | None
    meta_bytes: int | None
    body_bytes: int | None
    progress_bytes: int | None
    result_bytes: int | None
    result_body_bytes: int | None
    data_json: str | None
    meta_json: str | None
    progress_json: str | None
    result_json: str | None
    errors_json: str | None

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.state_number < 10

    @property
    def state(self) -> str:
        """``ready`` ... ``record``, ``waiting``; ``completed``, ``failed`` or ``cancelled`` once it has ended."""
        held = self.available_at is not None and self.available_at >= engine.HELD
        return WAITING if held else state_label(self.state_number)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The failed attempts, oldest first, at most 20."""
        return [] if self.errors_json is None else codec.loads(self.errors_json)


class LoggedEvent(NamedTuple):
    """A job's part in one row of the lease log."""

    id: int
    occurred_at: datetime
    kind_number: int
    queue_id: int
    node: str | None
    deliveries: int | None
    claim: int | None
    deadline: datetime | None
    #: Milliseconds since it was ready, and that its handler ran.
    waited: int | None
    ran: int | None
    name: str | None
    detail_json: str | None

    @property
    def kind(self) -> str:
        """``claimed``, ``acked`` and so on."""
        return str(EventKind(self.kind_number).label)

    @property
    def what(self) -> str:
        """The event in words: who gives a job back because it failed says so."""
        if self.kind_number == EventKind.RELEASED:
            word = "suspended" if self.detail.get("suspended") else "given back"
            return "failed" if self.detail.get("error_type") else word
        if self.kind_number == EventKind.FAILED:
            return "failed for good"
        if self.kind_number == EventKind.ACKED:
            return "completed"
        return self.kind.replace("_", " ")

    @property
    def detail(self) -> dict[str, Any]:
        """What else is known of it."""
        return {} if self.detail_json is None else codec.loads(self.detail_json)


class FoundJob(NamedTuple):
    """A job or a result that a search found."""

    seq: int
    state_number: int
    project: str
    queue: str
    queue_id: int
    key: str | None
    name: str | None
    created_at: datetime
    deliveries: int

    @property
    def state(self) -> str:
        """Its state in a word."""
        return state_label(self.state_number)


class ServerState(NamedTuple):
    """The server, and the oldest transaction that holds back its cleaning (``None``: there is none)."""

    version: str
    age: float | None
    pid: int | None
    application: str | None
    leader: bool


def capped(count: int, cap: int | None = None) -> str:
    """Return a count of which everything above ``cap`` (by default ``COUNT_CAP``) is an estimate: ``12``, ``10,000+``.

    A count above the cap comes from the newest sample: ``about 123,000``.
    """
    top = cap or conf.settings.COUNT_CAP
    if count <= top:
        return f"{count:,}"
    return f"{top:,}+" if count <= top + 1 else f"about {count:,}"


def state_label(number: int) -> str:
    """Return the word for a state of a job, or (from 10 on) of a result."""
    return str(JobState(number).label if number < 10 else ResultState(number - 10).label)


#: The parameter of an address that chooses a database, and the cookie that keeps the choice.
SWITCH = "leasequeue_database"
_chosen: ContextVar[str] = ContextVar("leasequeue_database")


def alias() -> str:
    """Return the database whose queues the pages show."""
    return _chosen.get(conf.settings.DATABASE)


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


def read(inner: Operation[T]) -> T:
    """Run an operation that only reads, steadily, on the database of the queues."""
    return engine.run(steady(inner), using=alias())


def read_log(inner: Operation[T]) -> T:
    """Run an operation that only reads the lease log, steadily, on the database of the queues."""
    return engine.run(steady(inner, log=True), using=alias())


@operation
def read_job(seq: int) -> Steps[JobFacts | None]:
    """Read a job by its number: live, or ended and remembered; ``None`` if it is neither."""
    params = {"seq": seq, "bytes": MAX_JSON}
    rows = (yield "admin/job", params) or (yield "admin/ended", params)
    return (yield from shown_steps(JobFacts._make(rows[0]), MAX_JSON)) if rows else None


@operation
def read_events(seq: int) -> Steps[list[LoggedEvent]]:
    """Read what happened to a job, oldest first, at most the newest ``MAX_EVENTS``."""
    rows = yield "admin/job_events", {"seq": seq, "size": MAX_EVENTS}
    return [LoggedEvent._make(row) for row in reversed(rows)]


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
    found = seen(Worker.objects.using(alias()))
    return list((found if nodes is None else found.filter(node__in=nodes))[:MAX_WORKERS])


class StepFacts(NamedTuple):
    """A step: a sleep or a wait has a time, and its event while it waits; ``value_json`` is left out if it is long."""

    name: str
    done_at: datetime
    delivery: int
    until: datetime | None
    event: str | None
    over: bool
    value_json: str | None
    value_bytes: int | None


@operation
def read_steps(seq: int) -> Steps[list[StepFacts]]:
    """Read the first ``MAX_STEPS`` steps of a job, in their order."""
    rows = yield "admin/job_steps", {"seq": seq, "size": MAX_STEPS, "bytes": MAX_STEP_BYTES}
    return [StepFacts._make(row) for row in rows]


@operation
def find_jobs(seq: int | None, key: str | None, size: int = 50) -> Steps[list[FoundJob]]:
    """Find jobs and results by number or by the client's job id, in every project."""
    rows = yield "admin/find_jobs", {"seq": seq, "key": key, "size": size}
    return [FoundJob._make(row) for row in rows]


@operation
def read_server() -> Steps[ServerState]:
    """Read the server's version, its oldest transaction, and whether a reaper leads."""
    ((version, age, pid, application, *_),) = yield "server_status", {}
    leaders = yield "reaper_leader", LOCK
    return ServerState(version, age, pid, application or None, bool(leaders))


@operation
def ask_worker_to_stop(worker_id: int) -> Steps[tuple[str, bool] | None]:
    """Ask a worker to stop; return its name and whether it had been asked before, ``None`` if it is not there."""
    rows = yield "admin/worker_stop", {"id": worker_id}
    return next(((name, asked) for name, asked in rows), None)
