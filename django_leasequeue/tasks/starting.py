"""The start of a workflow, and additions by a running task: calls become jobs in one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from datetime import timedelta
from typing import Any, Generic, NamedTuple, cast
from uuid import UUID, uuid4

from django.db import transaction

from .. import conf, engine
from ..engine import Enqueued, Limited, Node
from ..engine.flow.figures import MemberOf
from ..engine.flow.workflows import MAX_LABEL_BYTES, check_nodes
from ..engine.limits import check_text
from ..engine.metadata import check_tags
from ..engine.operation import BEGIN, Statements, operation
from ..engine.queues import routing
from ..engine.queues.presets import Definition
from ..engine.queues.queues import find, make_declared
from ..enums import WorkflowShape
from ..exceptions import InvalidOption
from ..twins import Body, arun, either, run
from . import api, payload
from .api import InvalidTask, T, Task, TaskResult, task_backends
from .backend import LeaseQueueBackend, must_wait_for_commit
from .calls import CallCompiler, check_jobs
from .context import queue_database, running
from .deadlines import from_first_start
from .options import BackendOptions
from .results import local, new_ends, note_stored, number_of
from .signature import AddedStep, Adding, Ends, Graph, Placed, Signature, T_co
from .task_class import LeaseQueueTask
from .workflow_result import WorkflowResult


class Existing(NamedTuple):
    """A workflow that goes on, the backend of its tasks and their database, the queue of the job that adds to it."""

    uid: UUID
    backend: str
    database: str
    queue: str


class Plan(NamedTuple):
    """A workflow that is to be enqueued, or calls that are to be added to an existing one."""

    graph: Graph
    shape: WorkflowShape = WorkflowShape.MAPPING
    on_failure: Signature[Any] | None = None
    name: str = ""
    tags: dict[str, Any] | None = None
    existing: Existing | None = None


class Plannable(ABC, Generic[T_co]):
    """Base of classes that can be enqueued as a workflow."""

    __slots__ = ()

    def enqueue(self) -> WorkflowResult[T_co]:
        """Enqueue all of it, in the caller's transaction if there is one.

        Raises:
            InvalidTask: a task cannot run, or not in a workflow; nothing was enqueued.
            InvalidOption: there is no job in it, it is too large, or no workflow; nothing was enqueued.
            TypeError, ValueError: as ``enqueue`` of a task; nothing was enqueued.
        """
        return run(start(self._plan(), waits=True))

    async def aenqueue(self) -> WorkflowResult[T_co]:
        """Async twin of ``enqueue``: on an async connection of its own, not in a transaction of the caller."""
        return await arun(start(self._plan(), waits=False))

    @abstractmethod
    def _plan(self) -> Plan: ...


class _Ready(NamedTuple):
    """A workflow that can be enqueued: its nodes, the one for a failure, and the results of all."""

    nodes: list[Node]
    on_failure: Node | None
    #: All that is enqueued, in the order of the results.
    every: list[Node]
    results: list[TaskResult[Any]]
    database: str


def start(plan: Plan, *, waits: bool) -> Body[WorkflowResult[T]]:
    """Enqueue a workflow, or add to one; with ``waits`` only once data are committed that must be."""
    uid = uuid4() if plan.existing is None else plan.existing.uid
    backend = _backend(plan)
    ready = _prepare(plan, backend, uid)
    result: WorkflowResult[T] = WorkflowResult(str(uid), backend.alias, ready.database)
    after = conf.settings.ENQUEUE_AFTER_COMMIT_OF if waits else None
    if not must_wait_for_commit(after, ready.database):
        yield from _store(plan, ready, uid, backend)
        return result
    # What would be refused for what it is, is refused now.
    if ready.nodes:
        check_nodes(ready.nodes, len(plan.graph.known))
    for queue in dict.fromkeys(node.queue for node in ready.nodes):
        check_jobs(queue, [node.job for node in ready.nodes if node.queue == queue], backend.config)
    result.enqueued = False

    def store() -> None:
        # Queues may have moved while the data's transaction was open.
        homes = {ready.database} if plan.existing else {backend.home_of(node.queue) for node in ready.every}
        result._database = homes.pop() if len(homes) == 1 else ready.database
        run(_store(plan, ready._replace(database=result._database), uid, backend))
        result.enqueued = True

    transaction.on_commit(store, using=after)
    return result


def _store(plan: Plan, ready: _Ready, uid: UUID, backend: LeaseQueueBackend) -> Body[None]:
    operation = _start(plan, ready, uid, backend.config)
    answers = yield either(engine.run, engine.arun, operation, ready.database)
    for node, result, answer in zip(ready.every, ready.results, answers, strict=True):
        note_stored(result, engine.make_id(answer.seq, node.job.id_end or ""), local(answer.created_at))
    yield from backend.announce(ready.results)


@operation
def _start(plan: Plan, ready: _Ready, uid: UUID, options: BackendOptions) -> Statements[list[Enqueued]]:
    """Enqueue the nodes; a queue that is missing is made as the settings declare it."""
    yield BEGIN, {}
    for queue in sorted({node.queue for node in ready.every}):
        if (yield from find(options.project, queue)) is None:
            check_nodes(ready.nodes, len(plan.graph.known))
            yield from make_declared(
                options.project, queue, Definition(*options.declaration(queue)), options.database, tasks=True
            )
    if plan.existing is not None:
        adding = engine.extend_workflow(ready.nodes, uid, known=plan.graph.known, project=options.project)
    else:
        adding = engine.start_workflow(
            ready.nodes, uid, project=options.project, name=plan.name, on_failure=ready.on_failure, shape=plan.shape
        )
    return (yield from adding)


def _backend(plan: Plan) -> LeaseQueueBackend:
    """Return the one backend of a workflow's tasks; the default for an empty workflow."""
    check_text(plan.name, "the name of a workflow", MAX_LABEL_BYTES, 0)
    if plan.tags is not None:
        check_tags(plan.tags)
    if plan.on_failure is not None and not isinstance(plan.on_failure, Signature):
        raise InvalidOption(f"on_failure takes a signature, such as task.s(); it is {plan.on_failure!r}.")
    if not plan.graph.calls and plan.shape != WorkflowShape.LIST:
        raise InvalidOption("a workflow has at least one job." if plan.existing is None else "nothing was added.")
    aliases = {placed.signature.task.backend for placed in _every(plan)}
    if plan.existing is not None:
        aliases.add(plan.existing.backend)
    if len(aliases) > 1:
        raise InvalidTask(f"The tasks of a workflow have one backend; these have {', '.join(sorted(aliases))}.")
    backend = task_backends[next(iter(aliases), api.DEFAULT_TASK_BACKEND_ALIAS)]
    if not isinstance(backend, LeaseQueueBackend):
        raise InvalidTask(
            f"The backend {backend.alias!r} is a {type(backend).__name__}, which has no workflows: they need a"
            " LeaseQueueBackend. Tests run them at once with django_leasequeue.testing."
        )
    return backend


def _every(plan: Plan) -> list[Placed]:
    on_failure = [] if plan.on_failure is None or not plan.graph.calls else [Placed(plan.on_failure, Ends())]
    return [*plan.graph.calls, *on_failure]


def _prepare(plan: Plan, backend: LeaseQueueBackend, uid: UUID) -> _Ready:
    databases = set() if plan.existing is None else {plan.existing.database}
    # By identity: the plan keeps the tasks alive.
    made: dict[int, tuple[Task[..., Any], CallCompiler, dict[str, Any] | None]] = {}
    ends = new_ends()
    known = len(plan.graph.known)
    nodes: list[Node] = []
    results: list[TaskResult[Any]] = []
    for number, (signature, after, name, for_failure) in enumerate(_every(plan)):
        if (known_task := made.get(id(signature.task))) is not None:
            task, calls, context = known_task
        else:
            task, existing = signature.task, plan.existing
            named = task.queue_name != api.DEFAULT_TASK_QUEUE_NAME or "queue_name" in getattr(task, "changed", ())
            if existing is not None and isinstance(task, LeaseQueueTask) and not named:
                # What a running job adds is in that job's queue, unless its code names another.
                task = task.using(queue_name=existing.queue)
            if (conflict := getattr(task, "on_conflict", None)) not in (None, "ignore"):
                raise InvalidTask(
                    f"{task.module_path} has on_conflict={conflict!r}: the key of a step must be free, it takes nothing"
                    " from another job."
                )
            # No result can show a time that counts from when its step may start.
            timeless = task if getattr(task, "run_delay", None) is None else replace(task, run_after=None)
            calls, capture = backend.compiler_of(timeless, plan.tags), conf.settings.CONTEXT.CAPTURE
            context = payload.capture(capture, task) if capture else None
            made[id(signature.task)] = task, calls, context
            # A workflow goes on where it is, also when its queues have moved.
            if existing is None or existing.database not in routing.homes(backend.config.project, task.queue_name):
                databases.add(backend.database_of(task))
        args = list(signature.args)
        if number == len(plan.graph.calls) and not signature.immutable:
            args.insert(0, str(uid))
        if after.empty and not signature.immutable:
            args.insert(0, [])
        parents = tuple(place + known if place >= 0 else -1 - place for place in after.places)
        takes = bool(parents) and not (signature.immutable or after.empty)
        inputs = {"many": after.many, "failed": after.tolerant} if takes else None
        result, job = calls.prepare(args, signature.kwargs, next(ends), inputs, context)
        limited = cast("Limited | None", job.limit)
        limit = None if limited is None else (limited.key, limited.values)
        delay: timedelta | None = getattr(task, "run_delay", None)
        delay_ms = None if delay is None else max(0, round(delay.total_seconds() * 1000))
        job = from_first_start(job._replace(limit=None, delay_ms=delay_ms))
        nodes.append(Node(task.queue_name, job, parents, after.tolerant, for_failure, name, limit))
        results.append(result)
    if not nodes:
        databases.add(backend.databases()[0])
    if len(databases) > 1:
        raise InvalidTask(
            f"The jobs of a workflow are in one database; the queues of these are in {', '.join(sorted(databases))}."
        )
    every = [*nodes]
    on_failure = nodes.pop() if len(nodes) > len(plan.graph.calls) else None
    return _Ready(nodes, on_failure, every, results, next(iter(databases)))


class CurrentWorkflow(Adding, Plannable[Any]):
    """The workflow of a running task, made by ``current_workflow()``.

    ::

        @task
        def find(folder: str) -> int:
            workflow = current_workflow()
            files = list_files(folder)
            read = [workflow.add(scan.s(file)) for file in files]
            workflow.add(tell.s(folder), after=read)
            workflow.enqueue()
            return len(files)

    ``id``: of the workflow. ``name``: as it was enqueued. ``current``: the task that runs, for ``after``: such a step
    starts when it has succeeded. A step without ``after`` starts at once.
    """

    def __init__(self, existing: Existing, name: str, seq: int) -> None:
        super().__init__()
        self.id = str(existing.uid)
        self.name = name
        self._existing = existing
        self._enqueued = False
        self.current = AddedStep(self, self._graph.reference_existing(seq))

    def member(self, id: str) -> AddedStep:
        """Return a job that is in the workflow already, for ``after``.

        Args:
            id: that of its task's result, as ``result.members()`` has it.

        Raises:
            InvalidOption: it is no such id. One of another workflow is refused by ``enqueue``.
        """
        return AddedStep(self, self._graph.reference_existing(number_of(id)))

    @property
    def result(self) -> WorkflowResult[Any]:
        """The whole workflow: its status, its members."""
        return WorkflowResult(self.id, self._existing.backend, self._existing.database)

    def enqueue(self) -> WorkflowResult[Any]:
        """Enqueue the additions, once, in the caller's transaction if there is one; see ``Workflow.enqueue``."""
        result = super().enqueue()
        self._enqueued = True
        return result

    async def aenqueue(self) -> WorkflowResult[Any]:
        """Async twin of ``enqueue``: on an async connection of its own, not in a transaction of the caller."""
        result = await super().aenqueue()
        self._enqueued = True
        return result

    def _plan(self) -> Plan:
        if self._enqueued:
            raise InvalidOption("what was added is enqueued already. Call current_workflow() again to add more.")
        return Plan(self._graph, name=self.name, existing=self._existing)


def current_workflow() -> CurrentWorkflow:
    """Return the workflow of the task that runs here, to add steps to it.

    Raises:
        InvalidOption: no task runs in this thread or asyncio task, or it is in no workflow.
    """
    return run(_current())


async def acurrent_workflow() -> CurrentWorkflow:
    """Async twin of ``current_workflow``."""
    return await arun(_current())


def _current() -> Body[CurrentWorkflow]:
    control = running.get()
    if control is None:
        raise InvalidOption(
            "No task runs here: current_workflow() is for tasks, and not for threads that they start by themselves."
        )
    job = control.job
    alias = (job.meta or {}).get("backend", api.DEFAULT_TASK_BACKEND_ALIAS)
    database = queue_database(task_backends[alias], job.queue)
    found: MemberOf | None = yield either(engine.run, engine.arun, engine.workflow_of(job.seq), database)
    if found is None:
        raise InvalidOption(f"{job.name} runs in no workflow: enqueue it with chain, group, chord or Workflow.")
    return CurrentWorkflow(Existing(found.uid, alias, database, job.queue), found.name, job.seq)
