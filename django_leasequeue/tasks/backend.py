"""The task backend: ``TASKS = {"default": {"BACKEND": "django_leasequeue.tasks.LeaseQueueBackend"}}``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, cast

from django.conf import settings as django_settings
from django.core import checks as django_checks
from django.db import connections, transaction

from .. import conf, engine
from ..conf import process
from ..engine import metadata
from ..engine.jobs.template import dump_template
from ..engine.queues import presets, routing
from ..exceptions import BatchTooLarge, LeaseQueueError
from ..twins import Body, arun, either, run
from ..worker.atomic import check_writable
from . import api, payload, signals
from . import options as backend_options
from .api import BaseTaskBackend, InvalidTask, Task, TaskResult, TaskResultDoesNotExist
from .arguments import invalid_task
from .calls import (
    Batches,
    CallCompiler,
    QueueBatch,
    adopt_existing,
    check_jobs,
    fill_results,
    find_existing,
    may_be_uniform,
    store_calls,
    store_many,
    store_one,
)
from .context import replacing
from .exceptions import TaskNotFound
from .lookup import ResultRow, check_findable, find_row, result_of_row
from .results import LeaseQueueTaskResult, new_ends
from .task_class import Call, LeaseQueueTask

#: Most calls of one ``enqueue_many``.
MAX_MANY = 100_000
#: Calls above which COPY, and a pause of the garbage collector, gain time.
BULK_FROM = 100
#: Times that the job of a key may end without a trace while a call runs.
TRIES = 5
#: Most characters of a result's id that is looked for; ids of tasks have 36.
MAX_ID = 256

#: Valid tasks by identity, the entry in ``TASKS`` that they were checked with, and what makes jobs of their calls.
compiled_by_task: process.Memory[int, tuple[Task[..., Any], dict[str, Any], CallCompiler]] = process.Memory(1_024)


class LeaseQueueBackend(BaseTaskBackend):
    """Task backend that stores tasks as jobs in PostgreSQL; ``manage.py runworker`` runs them.

    A task runs at least once, is retried with backoff, and becomes a dead letter when its attempts are used up. One
    that is enqueued inside ``transaction.atomic()`` exists if and when that commits: ``transaction.on_commit`` is not
    needed. Where the jobs are in another database than the caller's data, the task is enqueued when the transaction of
    the data commits (``LEASEQUEUE["ENQUEUE_AFTER_COMMIT_OF"]``).

    Args:
        alias: key of the backend in ``TASKS``.
        params: its entry there. ``OPTIONS`` may have ``project``, ``database``, ``preset`` and ``queues``, see
            ``BackendOptions``; ``QUEUES`` is Django's: the names that tasks may use, ``[]`` for any.
    """

    task_class = LeaseQueueTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.params = params
        self.config = backend_options.BackendOptions.of(self.options, self.queues)

    def validate_task(self, task: Task[..., Any]) -> None:
        """Refuse a task that this backend cannot run: ``InvalidTask`` says what is not allowed."""
        # First, what Django's own checks take for granted.
        priority, run_after, name = task.priority, task.run_after, task.queue_name
        if not isinstance(priority, int) and not (isinstance(priority, float) and priority.is_integer()):
            raise InvalidTask(
                f"priority must be a whole number from {api.TASK_MIN_PRIORITY} to {api.TASK_MAX_PRIORITY}; it is"
                f" {priority!r}."
            )
        if run_after is not None and not isinstance(run_after, datetime):
            raise InvalidTask(
                "run_after must be a datetime, or with this package's @task a timedelta or a number of seconds; it is"
                f" {run_after!r}."
            )
        if not isinstance(name, str):
            raise InvalidTask(f"queue_name must be a text; it is {name!r}.")
        super().validate_task(task)
        if name not in self.queues:
            with invalid_task():
                presets.check_name(name, "queue_name")

    def enqueue(self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[Any]:
        """Enqueue one call of a task, in the caller's transaction if there is one.

        The result's ``enqueued_at`` is ``None`` while it waits for the commit of data in another database.

        Raises:
            InvalidTask: the backend does not accept the task, or no worker would find it by its name.
            TypeError: the task does not take these arguments, or one has a type that JSON does not have.
            ValueError: an argument has a value that JSON cannot hold, or is too large (``PayloadTooLarge``).
            QueueNotFound: the queue is missing and may not be made.
        """
        lean = self._lean((task, args, kwargs), waits=True)
        result = None if lean is None else engine.run(*lean)
        if result is None:
            return run(self._enqueue([(task, args, kwargs)], waits=True))[0]
        if signals.enqueued.is_heard():
            run(self.announce([result]))
        return result

    async def aenqueue(self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[Any]:
        """Async twin of ``enqueue``: on an async connection of its own, not in a transaction of the caller."""
        lean = self._lean((task, args, kwargs), waits=False)
        result = None if lean is None else await engine.arun(*lean)
        if result is None:
            return (await arun(self._enqueue([(task, args, kwargs)], waits=False)))[0]
        if signals.enqueued.is_heard():
            await arun(self.announce([result]))
        return result

    def enqueue_many(self, calls: Iterable[Call]) -> list[TaskResult[Any]]:
        """Enqueue up to 100,000 calls ``(task, args, kwargs)``: all or none of a database; errors as of ``enqueue``.

        Return one result per call, in order. ``task.enqueue_many`` is shorter where the task is one.
        """
        return run(self._enqueue(calls, waits=True))

    async def aenqueue_many(self, calls: Iterable[Call]) -> list[TaskResult[Any]]:
        """Async twin of ``enqueue_many``: on an async connection of its own, not in a transaction of the caller."""
        return await arun(self._enqueue(calls, waits=False))

    def get_result(self, result_id: str) -> TaskResult[Any]:
        """Return the result with this id; ``refresh()`` reads it again.

        Raises:
            TaskResultDoesNotExist: there is none in this backend's project: it never was, or has expired.
            TaskNotFound: it is there, but its task is not any more.
        """
        return run(self._find(result_id))

    async def aget_result(self, result_id: str) -> TaskResult[Any]:
        """Async twin of ``get_result``."""
        return await arun(self._find(result_id))

    def template_of(self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return one call of a task as JSON: recurring tasks enqueue it where the task's code is not."""
        _, job = self.compiler_of(task).prepare(args, kwargs, next(new_ends()))
        definition = presets.Definition(*self.config.declaration(task.queue_name))
        config = self.config
        return dump_template(
            job, task.queue_name, project=config.project, definition=definition, database=config.database
        )

    def database_of(self, task: Task[..., Any]) -> str:
        """Return the alias of the database for a task's jobs."""
        return self.home_of(task.queue_name)

    def home_of(self, queue: str) -> str:
        """Return the alias of the database that takes new jobs of a queue."""
        return self.config.database or routing.alias_of(self.config.project, queue, adding=True)

    def check(self, **kwargs: Any) -> Iterable[django_checks.CheckMessage]:
        """Check this backend's settings: ``leasequeue.tasks.E001`` and following."""
        return list(backend_options.check(self.alias, self.params))

    def _lean(self, call: Call, *, waits: bool) -> tuple[engine.Operation[TaskResult[Any] | None], str] | None:
        """Return the operation that stores a call by one lean statement, and its database; ``None``: it needs more."""
        shared = self.compiler_of(call[0]).shared
        if shared is None or not may_be_uniform():
            return None
        home = self.home_of(call[0].queue_name)
        if waits and must_wait_for_commit(conf.settings.ENQUEUE_AFTER_COMMIT_OF, home):
            return None
        return store_one(self.config, self.alias, shared, call), home

    def _enqueue(self, calls: Iterable[Call], *, waits: bool) -> Body[list[TaskResult[Any]]]:
        """Store the jobs of calls. If ``waits``, defer jobs until the data's transaction commits."""
        asked = list(islice(calls, MAX_MANY + 1))
        if len(asked) > MAX_MANY:
            raise BatchTooLarge(f"one call of enqueue_many takes at most {MAX_MANY} calls of tasks. Split them.")
        if not asked:
            return []
        after, capture = conf.settings.ENQUEUE_AFTER_COMMIT_OF if waits else None, conf.settings.CONTEXT.CAPTURE
        first = asked[0][0]
        shared = self.compiler_of(first).shared if len(asked) > BULK_FROM and may_be_uniform() else None
        if shared is not None and all(call[0] is first for call in asked):
            stored: list[TaskResult[Any]] | None = None
            home = self.home_of(first.queue_name)
            if not must_wait_for_commit(after, home):
                store = store_many(self.config, self.alias, shared, asked)
                stored = yield either(engine.run, engine.arun, store, home)
            if stored is not None:
                if signals.enqueued.is_heard():
                    yield from self.announce(stored)
                return stored
        made: list[TaskResult[Any]] = []
        databases: dict[str, Batches] = {}
        # By identity: the results keep their tasks alive, so that no number comes twice.
        tasks: dict[int, tuple[CallCompiler, dict[str, Any] | None, QueueBatch]] = {}
        ends = new_ends()
        # The results live on: collections meanwhile would find nothing, and each would walk over all there are.
        with process.collector_paused() if len(asked) > BULK_FROM else nullcontext():
            for task, args, kwargs in asked:
                known = tasks.get(id(task))
                if known is None:
                    compiler = self.compiler_of(task)
                    context = payload.capture(capture, task) if capture else None
                    batches = databases.setdefault(self.home_of(task.queue_name), {})
                    known = compiler, context, batches.setdefault(task.queue_name, QueueBatch([], []))
                    tasks[id(task)] = known
                # The job's number is the other half of the id: the database gives it.
                result, job = known[0].prepare(args, kwargs, next(ends), None, known[1])
                made.append(result)
                known[2].results.append(result)
                known[2].jobs.append(job)
        for database, batches in databases.items():
            if not must_wait_for_commit(after, database):
                yield from self._store(database, batches)
                continue
            check_writable(database)
            named = {queue: batch.with_known_ids() for queue, batch in batches.items()}
            for queue, batch in named.items():
                check_jobs(queue, batch.jobs, self.config)
            transaction.on_commit(partial(self._store_after_commit, named), using=after)
        return made

    def _store_after_commit(self, batches: Batches) -> None:
        """Store calls where their queues are by now: a queue may have moved while the data's transaction was open."""
        homes: dict[str, Batches] = {}
        for queue, batch in batches.items():
            homes.setdefault(self.home_of(queue), {})[queue] = batch
        for database, at_home in homes.items():
            run(self._store(database, at_home))

    def _store(self, database: str, batches: Batches) -> Body[None]:
        left = batches
        for _ in range(TRIES):
            answers = yield either(engine.run, engine.arun, store_calls(left, self.config), database)
            duplicates = fill_results(left, answers)
            if not duplicates:
                break
            found = yield either(engine.run, engine.arun, find_existing(duplicates, self.config.project), database)
            left = adopt_existing(duplicates, found, self.alias)
            if not left:
                break
        else:
            raise LeaseQueueError(f"A key was taken and freed again {TRIES} times in a row; try the call again.")
        if signals.enqueued.is_heard():
            yield from self.announce(result for batch in batches.values() for result in batch.results)

    def announce(self, new: Iterable[TaskResult[Any]]) -> Body[None]:
        """Send Django's signal for tasks that were enqueued, and write its log lines."""
        sender, heard, logged = type(self), signals.enqueued.has_receivers(), signals.enqueued.is_logged()
        if not (heard or logged):
            return
        for result in new:
            if cast("LeaseQueueTaskResult[Any]", result).created is False:
                continue
            if heard:
                yield signals.enqueued.sending(sender, result)
            else:
                signals.enqueued.log(sender=sender, task_result=result)

    def _find(self, result_id: str) -> Body[TaskResult[Any]]:
        key = str(result_id)
        if len(key) > MAX_ID or "\x00" in key or key != key.encode(errors="replace").decode():
            raise _missing(key[:MAX_ID])
        for database in self.databases():
            row: ResultRow | None = yield either(engine.run, engine.arun, find_row(key, self.config.project), database)
            if row is not None:
                return result_of_row(key, row, self.alias)
        raise _missing(key)

    def compiler_of(self, task: Task[..., Any], common_tags: dict[str, Any] | None = None) -> CallCompiler:
        """Return the compiler of a task's calls, with the tags of their workflow."""
        tagged = common_tags or metadata.inherited.get() or replacing.get()
        known = None if tagged else compiled_by_task.get(id(task))
        if known is not None and known[0] is task and known[1] is self.params:
            return known[2]
        self.validate_task(task)
        try:
            check_findable(task.module_path)
        except TaskNotFound as error:
            raise InvalidTask(f"No worker could run this task. {error}") from error
        made = CallCompiler(task, self.alias, common_tags)
        # Whether a time is allowed, and what it means, is up to settings that tests change; a host may check more.
        if not tagged and task.run_after is None and type(self).validate_task is LeaseQueueBackend.validate_task:
            compiled_by_task[id(task)] = task, self.params, made
        return made

    def databases(self) -> list[str]:
        """Return the aliases of the databases in which results of this backend may be."""
        if self.config.database:
            return [self.config.database]
        if self.queues:
            homes = [routing.homes(self.config.project, queue) for queue in sorted(self.queues)]
            return list(dict.fromkeys(alias for each in homes for alias in each))
        return routing.aliases()


def _missing(key: str) -> TaskResultDoesNotExist:
    return TaskResultDoesNotExist(
        f"There is no result {key!r}: no such task was enqueued in this project, or its result has expired"
        " (result_ttl_ms)."
    )


def must_wait_for_commit(data: str | None, jobs: str) -> bool:
    """Return whether the open transaction of the alias ``data`` must commit before jobs are stored in ``jobs``.

    A transaction that the caller has opened on the jobs' own alias decides alone. The transactions that ``TestCase``
    puts around a test do not count, as they never commit.
    """
    if data is None or data == jobs or data not in django_settings.DATABASES:
        return False
    return _opened(data) and not _opened(jobs)


def _opened(alias: str) -> bool:
    """Return whether the code under test, or in production any code, is inside ``atomic()`` on an alias."""
    return any(not getattr(block, "_from_testcase", False) for block in connections[alias].atomic_blocks)
