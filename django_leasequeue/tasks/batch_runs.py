"""The part of the worker's handler that runs the calls of batch tasks together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from .. import twins
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

    @abstractmethod
    def _entry(self, job: LeasedJob) -> TaskEntry: ...

    @abstractmethod
    def timeout(self, job: LeasedJob) -> tuple[float | None, float | None]: ...

    @abstractmethod
    def _arguments(self, entry: TaskEntry, job: LeasedJob, control: JobControl) -> tuple[Any, Any, Any]: ...

    @abstractmethod
    def _kept(self, entry: TaskEntry, job: LeasedJob, value: Any) -> str | None: ...

    def takes_batches(self) -> bool:
        return bool(declared)

    def batch_of(self, job: LeasedJob) -> BatchGroup | None:
        try:
            entry = self._entry(job)
            # A deadline, as other programs may give one, is that of a single job.
            if not entry.batch or MARK in (job.meta_json or ""):
                return None
            task: Any = entry.task
            # A large payload is not here yet: to read it now would hold up all claims.
            if task.batch_by is None:
                by = None
            elif job.is_loaded:
                by = arguments_of(job.data_json)[1].get(task.batch_by)
            else:
                return None
            # The host's context and the timeouts are those of a run: only calls with the same ones share it.
            context = noted(job.meta_json, CONTEXT)
            same = None if by is None and context is None else repr((by, context)), job.meta_json and self.timeout(job)
        except Exception:  # noqa: BLE001  (its run says what is wrong)
            return None
        return BatchGroup((entry.path, entry.alias, same), entry.batch, task.batch_wait)

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
                for job, own in zip(jobs, control.members, strict=True):
                    try:
                        found.append((yield from self._call(entry, job, own)))
                    except Exception as error:  # noqa: BLE001  (it is the job's own)
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
        return [
            self._answer(entry, job, *(next(ended) if isinstance(each, BatchCall) else (None, each)))
            for job, each in zip(jobs, found, strict=True)
        ]

    def _call(self, entry: TaskEntry, job: LeasedJob, control: JobControl) -> twins.Body[BatchCall]:
        """Return the call of a job that runs together with others."""
        if not job.is_loaded:
            job = yield twins.either(job.loaded, job.aloaded)
        try:
            if (telling := self._announcer.started(entry, job, control)) is not None:
                yield from telling
            args, kwargs, marked = self._arguments(entry, job, control)
            if marked is not None:
                args = yield from with_inputs(entry, job, args, marked)
        except UNREACHED as error:
            raise NotBegun(str(error)) from error
        control.begin()
        return BatchCall(tuple(args), kwargs, job.key or "", job.deliveries, control)

    def _answer(
        self, entry: TaskEntry, job: LeasedJob, value: Any, error: BaseException | None
    ) -> tuple[str | None, BaseException | None]:
        try:
            return (self._kept(entry, job, value) if error is None else None), error
        except Exception as refused:  # noqa: BLE001  (it is the job's own)
            return None, refused
