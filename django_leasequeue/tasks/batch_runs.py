"""The part of the worker's handler that runs the calls of batch tasks together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from .. import twins
from ..conf import process
from ..engine import LeasedJob
from ..engine.metadata import CONTEXT, noted
from ..exceptions import NotBegun
from ..worker.batches import Answers, BatchControl, BatchGroup
from ..worker.control import JobControl
from .batch import Batch, BatchCall, acall, call, close, declared
from .context import running, with_inputs
from .deadlines import MARK
from .exceptions import UNREACHED
from .lookup import TaskEntry
from .payload import arguments_of, restored
from .signals import Announcer


class BatchRuns(ABC):
    """Runs batch tasks for ``TaskHandler``; see ``worker.batches.BatchHandler``."""

    _announcer: Announcer
    #: The groups of jobs whose name alone decides; ``None``: they run alone.
    _groups: dict[str | None, BatchGroup | None]

    @abstractmethod
    def _entry(self, job: LeasedJob) -> TaskEntry: ...

    @abstractmethod
    def timeout(self, job: LeasedJob) -> tuple[float | None, float | None]: ...

    @abstractmethod
    def _kept(self, entry: TaskEntry, job: LeasedJob, value: Any) -> str | None: ...

    def takes_batches(self) -> bool:
        return bool(declared)

    def batch_of(self, job: LeasedJob) -> BatchGroup | None:
        if job.meta_json is None and job.name in self._groups:
            return self._groups[job.name]
        try:
            entry = self._entry(job)
            task: Any = entry.task
            if not entry.batch or (job.meta_json is None and task.batch_by is None):
                group = BatchGroup((entry.path, entry.alias), entry.batch, task.batch_wait) if entry.batch else None
                if job.meta_json is None:
                    self._groups[job.name] = group
                return group
            # A deadline, as other programs may give one, is that of a single job. And a large payload is not here yet:
            # to read it now would hold up all claims.
            if MARK in (job.meta_json or "") or not (task.batch_by is None or job.is_loaded):
                return None
            by = None if task.batch_by is None else arguments_of(job.data_json)[1].get(task.batch_by)
            # The host's context and the timeouts are those of a run: only calls with the same ones share it.
            shared = repr((by, noted(job.meta_json, CONTEXT))), job.meta_json and self.timeout(job)
            return BatchGroup((entry.path, entry.alias, shared), entry.batch, task.batch_wait)
        except BaseException as error:  # its run says what is wrong
            if not process.outlives(error):
                raise
            return None

    def run_batch(self, jobs: Sequence[LeasedJob], control: BatchControl) -> Answers:
        return twins.run(self._together(jobs, control))

    async def arun_batch(self, jobs: Sequence[LeasedJob], control: BatchControl) -> Answers:
        return await twins.arun(self._together(jobs, control))

    def _together(self, jobs: Sequence[LeasedJob], control: BatchControl) -> twins.Body[Answers]:
        entry = self._entry(jobs[0])
        found: list[BatchCall | BaseException | None] = []
        batch = Batch([])
        raised: BaseException | None = None
        token = running.set(control)
        try:
            with restored(jobs[0]):
                announces = self._announcer.hears_starts()
                for job, own in zip(jobs, control.members, strict=True):
                    try:
                        text = job.data_json
                        if announces or not job.is_loaded:
                            text = yield from self._prepared(entry, job, own)
                        args, kwargs, marked = arguments_of(text)
                        if marked is not None:
                            args = yield from with_inputs(entry, job, args, marked)
                        own.raise_if_aborted()
                        found.append(BatchCall(tuple(args), kwargs, job.key or "", job.deliveries, own))
                    except UNREACHED as error:
                        found.append(NotBegun(str(error)))
                    except BaseException as error:  # it is the job's own
                        if not process.outlives(error):
                            raise
                        found.append(error)
                batch = Batch([each for each in found if isinstance(each, BatchCall)])
                if len(batch):
                    raised = yield twins.either(call, acall, entry.func.__wrapped__, batch)
            control.returned()
        except Exception as error:  # noqa: BLE001  (it is that of calls without an answer)
            raised = error
        finally:
            running.reset(token)
        found += [raised] * (len(jobs) - len(found))
        ended = iter(close(batch, raised))
        answers: Answers = []
        for job, each in zip(jobs, found, strict=True):
            value, own_error = next(ended) if isinstance(each, BatchCall) else (None, each)
            kept = None
            if own_error is None and value is not None:
                try:
                    kept = self._kept(entry, job, value)
                except BaseException as refused:  # it is the job's own
                    if not process.outlives(refused):
                        raise
                    own_error = refused
            answers.append((kept, own_error))
        return answers

    def _prepared(self, entry: TaskEntry, job: LeasedJob, control: JobControl) -> twins.Body[str | None]:
        """Announce a job that runs together with others; return its payload."""
        if not job.is_loaded:
            job = yield twins.either(job.loaded, job.aloaded)
        if (telling := self._announcer.started(entry, job, control)) is not None:
            yield from telling
        return job.data_json
