"""Job: a job from its enqueue until it is forgotten, as projects query it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol

from django.db import NotSupportedError, models
from django.db.models.expressions import Col
from django.db.models.lookups import Exact, In
from django.db.models.sql import Query
from django.db.models.sql.datastructures import BaseTable
from django.db.models.sql.where import AND, XOR, WhereNode

from ..enums import JobStatus
from .base import PlainJSONField, ReadOnlyModel, ReadOnlyQuerySet, SameNumber, TagExact, TagsContain, TagsField
from .flow import LimitKey, Member, Workflow
from .queue import Queue


class _HasPath(Protocol):
    """A task."""

    @property
    def module_path(self) -> str: ...


class _Named(Protocol):
    """A limit."""

    @property
    def name(self) -> str: ...


#: Two views of the same rows and columns: one finds each job by its number, the other reads the tables of the states.
BY_NUMBER, BY_STATE = "leasequeue_jobs", "leasequeue_jobs_by_state"
#: States with their own view, whose rows can be ordered by an index; the states of FINISHED share another one.
OF_STATE = {
    state: f"leasequeue_jobs_{state}"
    for state in ("completed", "failed", "cancelled", "ready", "delayed", "waiting", "dead", "leased")
}
OF_FINISHED = "leasequeue_jobs_finished"


FINISHED = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


class JobKeyField(models.TextField):
    """The key of a job: equality uses the index of keys, or the number at the start of a task's id."""


class _ByKey:
    """A lookup by ``leasequeue_keyed``, which finds the jobs of keys."""

    def as_sql(self: Any, compiler: Any, connection: Any) -> tuple[str, Any]:
        given = self.rhs if isinstance(self, In) else [self.rhs]
        keys = [key for key in given if key is not None] if self.rhs_is_direct_value() else []
        if not keys or not hasattr(self.lhs, "alias"):
            return super().as_sql(compiler, connection)  # type: ignore[misc]
        number, _ = compiler.compile(Col(self.lhs.alias, Job._meta.get_field("seq")))
        found = f"SELECT k.seq FROM leasequeue_keyed(ARRAY[{', '.join(['%s'] * len(keys))}]::text[]) k"  # nosec  # B608
        return f"{number} = ANY (ARRAY({found}))", keys


for _lookup in (Exact, In):
    JobKeyField.register_lookup(type(_lookup.__name__, (_ByKey, _lookup), {}))


class JobQuery(Query):
    """Reads the tables of the states if the query names states; else it finds each job by its number."""

    def get_compiler(self, using: Any = None, connection: Any = None, elide_empty: bool = True) -> Any:
        query: Any = self
        for part in self.combined_queries:
            part.combined = True  # its rows are compared, which PlainJSONField asks for
        alias = self.get_initial_alias()
        if view := _view(self.where, alias):
            base = self.alias_map[alias]
            if isinstance(base, BaseTable) and base.table_name == BY_NUMBER:
                query = self.clone()
                query.alias_map = {**query.alias_map, alias: BaseTable(view, alias)}
        return super(JobQuery, query).get_compiler(using, connection, elide_empty)


def _view(where: Any, alias: str) -> str | None:
    """Return the view to read, if the query names states and does not search by number, key or tags."""
    states = _states(where, alias)
    if states is None or _is_searched(where, alias):
        return None
    if len(states) == 1:
        return OF_STATE.get(next(iter(states)), BY_STATE)
    return OF_FINISHED if states <= set(FINISHED) else BY_STATE


def _states(node: Any, alias: str) -> set[Any] | None:
    """Return the states that a condition allows; ``None``: any."""
    if not isinstance(node, WhereNode):
        named = isinstance(node, (Exact, In)) and node.rhs_is_direct_value() and _column(node, alias) == "state"
        return None if not named else {node.rhs} if isinstance(node, Exact) else set(node.rhs)
    found = [_states(child, alias) for child in node.children]
    known = [states for states in found if states is not None]
    if node.negated or not known or node.connector == XOR:
        return None
    if node.connector == AND:
        return set.intersection(*known)
    return set.union(*known) if len(known) == len(found) else None


def _is_searched(node: Any, alias: str) -> bool:
    """Return whether a condition searches by number, key, workflow or tags."""
    if isinstance(node, WhereNode):
        return any(_is_searched(child, alias) for child in node.children)
    if isinstance(node, (TagExact, TagsContain)):
        return True
    equal = isinstance(node, (Exact, In)) and node.rhs_is_direct_value()
    return equal and _column(node, alias) in ("seq", "key", "workflow_id")


def _column(lookup: Any, alias: str) -> str | None:
    """Return the job's column of a lookup; ``None``: it is of another table."""
    return lookup.lhs.target.column if isinstance(lookup.lhs, Col) and lookup.lhs.alias == alias else None


class JobQuerySet(ReadOnlyQuerySet["Job"]):
    """Jobs. Filters by ``state`` read the small table of that state; methods exist for the usual ones.

    Changes go through the engine, in batches of 1,000, in the caller's transaction if there is one. They skip jobs that
    have left their state meanwhile.
    """

    #: ``django_leasequeue.engine.model_writes``: models know nothing of the engine, so the app gives it to them.
    engine: ClassVar[Any] = None

    def select_for_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: only the engine locks jobs."""
        raise NotSupportedError(
            "Jobs cannot be locked: workers would wait. cancel(), retry(), run_now() and release() lock the jobs that"
            " they change, and skip those in another state."
        )

    def waiting(self) -> JobQuerySet:
        """Return the jobs that a limit or a workflow holds."""
        return self.filter(state=JobStatus.WAITING)

    def delayed(self) -> JobQuerySet:
        """Return the jobs that are not due yet."""
        return self.filter(state=JobStatus.DELAYED)

    def ready(self) -> JobQuerySet:
        """Return the jobs that a worker may claim."""
        return self.filter(state=JobStatus.READY)

    def leased(self) -> JobQuerySet:
        """Return the jobs that workers hold."""
        return self.filter(state=JobStatus.LEASED)

    def dead(self) -> JobQuerySet:
        """Return the dead letters in their own queue."""
        return self.filter(state=JobStatus.DEAD)

    def completed(self) -> JobQuerySet:
        """Return the completed jobs whose result is kept."""
        return self.filter(state=JobStatus.COMPLETED)

    def failed(self) -> JobQuerySet:
        """Return the jobs that failed for good, without dead letters, whose result is kept."""
        return self.filter(state=JobStatus.FAILED)

    def cancelled(self) -> JobQuerySet:
        """Return the cancelled jobs whose result is kept, and those that a failed workflow cut off."""
        return self.filter(state=JobStatus.CANCELLED)

    def finished(self) -> JobQuerySet:
        """Return the completed, failed and cancelled jobs whose result is kept."""
        return self.filter(state__in=FINISHED)

    def for_task(self, task: str | _HasPath) -> JobQuerySet:
        """Return the jobs of a task: the task itself, or its import path."""
        return self.filter(task=task if isinstance(task, str) else task.module_path)

    def in_queue(self, name: str, project: str = "") -> JobQuerySet:
        """Return the jobs of a queue, by its name."""
        ids = Queue.objects.using(self.db).filter(project=project, name=name).values_list("pk", flat=True)[:1]
        return self.filter(queue__in=list(ids))

    def in_workflow(self, workflow: Any) -> JobQuerySet:
        """Return the jobs of a workflow: the row, its ``uid``, or its number."""
        if isinstance(workflow, (int, Workflow)):
            return self.filter(workflow=workflow)
        return self.filter(workflow__in=list(Workflow.objects.using(self.db).filter(uid=workflow)[:1]))

    def waiting_for(self, limit: str | _Named, key: str | None = None) -> JobQuerySet:
        """Return the jobs that wait for a limit: the limit or its name; of all its keys, or of one."""
        name = limit if isinstance(limit, str) else limit.name
        keys = LimitKey.objects.using(self.db).filter(limit__name=name)
        keys = keys if key is None else keys.filter(key=key)
        held = Member.objects.using(self.db).filter(waits=True, key__in=keys.values("pk"))
        return self.filter(pk__in=held.values("seq"))

    def cancel(self, *, running: bool = False) -> int:
        """Cancel the jobs that have not started; return how many. With ``running`` also those that run.

        At the commit, the worker of a running job aborts it and drops its result.
        """
        return int(self.engine.cancel(self, running))

    def retry(self, *, from_step: str | None = None) -> int:
        """Move the dead letters back to their queue; return how many.

        With ``from_step`` this step and later ones run again; jobs without the step are skipped.
        """
        return int(self.engine.act(self, "retry", from_step=from_step))

    def redrive(self, queue: str, *, from_step: str | None = None) -> int:
        """Move the dead letters to another queue of their project; return how many. See ``retry``."""
        return int(self.engine.act(self, "redrive", to=queue, from_step=from_step))

    def discard(self, reason: str) -> int:
        """Remove the dead letters for good; return how many. The reason is kept in the lease log."""
        return int(self.engine.act(self, "discard", reason=reason))

    def run_now(self) -> int:
        """Make the delayed jobs ready; return how many."""
        return int(self.engine.run_now(self))

    def release(self) -> int:
        """Take the leased jobs from their workers, so that they are ready again; return how many."""
        return int(self.engine.release(self))


if TYPE_CHECKING:

    class JobManager(JobQuerySet, models.Manager["Job"]):  # type: ignore[misc]
        """It has all of a queryset's methods."""

else:

    class JobManager(models.Manager.from_queryset(JobQuerySet)):
        """Gives querysets of jobs."""

        def get_queryset(self) -> JobQuerySet:
            return JobQuerySet(self.model, query=JobQuery(self.model), using=self._db, hints=self._hints)


class Job(ReadOnlyModel):
    """A job from its enqueue until its result expires: its call, its state, its outcome.

    A read-only view; the engine changes jobs. It has no records of logs.
    """

    Status = JobStatus
    instead = {
        "create": "task.enqueue(...) or Queue(name).enqueue(...)",
        "update": "Job.objects.filter(...).run_now(), .release(), .retry() or .redrive(queue); what was enqueued stays",
        "delete": "Job.objects.filter(...).cancel() or .discard(reason), or Queue(name).purge() for all of a queue",
    }
    says = "job {0.seq}"

    seq = models.BigIntegerField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, related_name="jobs")
    state = models.TextField(choices=JobStatus.choices)
    #: The import path of its task; of other jobs the name that they were given, if any.
    task = models.TextField(null=True)
    #: The payload.
    data = PlainJSONField(null=True)
    #: The arguments, of a task.
    args = PlainJSONField(null=True)
    kwargs = PlainJSONField(null=True)
    meta = PlainJSONField(null=True)
    progress = PlainJSONField(null=True)
    priority = models.IntegerField()
    enqueued_at = models.DateTimeField()
    #: When it became ready, or will be.
    available_at = models.DateTimeField(null=True)
    #: When the worker that has it, or ended it, claimed it.
    started_at = models.DateTimeField(null=True)
    #: When it ended, or became a dead letter.
    finished_at = models.DateTimeField(null=True)
    #: When it is forgotten, or its time to live is over.
    expires_at = models.DateTimeField(null=True)
    #: End of the lease.
    deadline = models.DateTimeField(null=True)
    deliveries = models.IntegerField()
    max_deliveries = models.IntegerField(null=True)
    worker = models.TextField(null=True)
    #: The last failure.
    error_type = models.TextField(null=True)
    error = models.TextField(null=True)
    fingerprint = models.TextField(null=True)
    workflow = models.ForeignKey(
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, null=True, related_name="jobs"
    )
    #: The id of a task's result, or the key that the caller gave.
    key = JobKeyField(null=True)
    tag = models.TextField(null=True)
    #: Names and values to find it by.
    tags = TagsField(null=True)
    #: The lease that holds it, or that it ended with: ``JobEvent.claim``.
    claim = models.BigIntegerField(null=True)
    #: The origin of its enqueue, if it was given.
    origin = models.TextField(null=True)

    #: How it ended; ``None`` while it has not, or when that is forgotten.
    result = SameNumber("leasequeue.JobResult")
    #: Why it is a dead letter; ``None`` if it is none.
    dead_letter = SameNumber("leasequeue.DeadLetter")

    objects: ClassVar[JobManager] = JobManager()

    class Meta:
        managed = False
        db_table = BY_NUMBER
        get_latest_by = "seq"
        permissions = [
            ("view_payload", "Can see the payload of jobs"),
            ("retry_job", "Can retry dead letters"),
            ("redrive_job", "Can redrive dead letters to another queue"),
            ("discard_job", "Can discard dead letters"),
            ("edit_job", "Can edit the payload of a dead letter and retry it"),
            ("release_job", "Can release leased jobs"),
            ("cancel_job", "Can cancel jobs that have not started"),
        ]

    def _alone(self) -> JobQuerySet:
        return type(self).objects.using(self._state.db).filter(pk=self.pk)

    def cancel(self, *, running: bool = False) -> bool:
        """Take it out if it has not started; return whether that was done. See the queryset's ``cancel``."""
        return bool(self._alone().cancel(running=running))

    def retry(self) -> bool:
        """Bring a dead letter back to the queue that it came from; return whether that was done."""
        return bool(self._alone().retry())

    def redrive(self, queue: str) -> bool:
        """Bring a dead letter to another queue of its project; return whether that was done."""
        return bool(self._alone().redrive(queue))

    def discard(self, reason: str) -> bool:
        """Remove a dead letter for good; return whether that was done."""
        return bool(self._alone().discard(reason))

    def run_now(self) -> bool:
        """Make a delayed job ready; return whether that was done."""
        return bool(self._alone().run_now())

    def release(self) -> bool:
        """Take a leased job from its worker, so that it is ready again; return whether that was done."""
        return bool(self._alone().release())
