"""Steps of a running job: each runs once; a later delivery of the job continues after the last recorded step."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connections

from .. import engine
from ..engine import codec
from ..engine.jobs.steps import KeptStep, forget_wait, keep_step, load_step, read_steps, step_text, wait_step
from ..engine.limits import MAX_SPAN_MS, MAX_STEP_NAME, MAX_STEPS, check_integer, check_text, seconds_of
from ..engine.store import is_reference
from ..enums import JobFlag
from ..exceptions import EventTimeout, InvalidOption, JobCancelled, JobFailed, LeaseLost, PayloadTooLarge
from .atomic import AtomicStep, OneTransaction, atomic_run, check_ended, refusing_writes
from .undo import Undo, UndoneSteps

if TYPE_CHECKING:
    from .control import JobControl
    from .durable import Result

logger = logging.getLogger("django_leasequeue.worker")

MAX_RETRIES = 100
#: Errors for which a step is not retried.
_FINAL = (LeaseLost, InvalidOption, PayloadTooLarge)


class _Done(Exception):
    """Another run has recorded the step meanwhile: this transaction is rolled back, and the other value counts."""


class JobSteps(UndoneSteps):
    """The steps of one run. Made by ``JobControl`` when it is asked for the first one."""

    def __init__(self, control: JobControl) -> None:
        super().__init__(control)
        self._counts: Counter[str] = Counter()
        self._asked_for = 0

    def run(
        self, name: str, call: Callable[[], Any], *, atomic: bool, retries: int, backoff: float, undo: Undo | None
    ) -> Any:
        """Return the recorded value of the step, or run it. See ``JobControl.step``."""
        name, undone_by = self._unique_name(name, retries, backoff), self._undone_by(undo, atomic)
        if (done := self._find(name)) is not None:
            return self._value(done)
        while True:
            try:
                if atomic:
                    return self._in_transaction(name, call, undone_by)
                return self._plainly(name, call(), undone_by)
            except Exception as error:
                if not retries or self._control.lost or isinstance(error, _FINAL):
                    raise
            retries -= 1
            time.sleep(backoff)

    async def arun(
        self, name: str, call: Callable[[], Any], *, atomic: bool, retries: int, backoff: float, undo: Undo | None
    ) -> Any:
        """See ``run``; the step's function may be a coroutine function."""
        name, undone_by = self._unique_name(name, retries, backoff), self._undone_by(undo, atomic)
        find = sync_to_async(self._find) if self._known is None else None
        if (done := self._find(name) if find is None else await find(name)) is not None:
            return await sync_to_async(self._value)(done) if is_reference(done.value) else codec.loads(done.value)
        while True:
            try:
                if atomic:
                    return await sync_to_async(self._in_transaction)(name, call, undone_by)
                value = call()
                value = await value if inspect.isawaitable(value) else value
                return await sync_to_async(self._plainly)(name, value, undone_by)
            except Exception as error:
                if not retries or self._control.lost or isinstance(error, _FINAL):
                    raise
            retries -= 1
            await asyncio.sleep(backoff)

    @contextmanager
    def block(self, name: str, undo: Undo | None, step: AtomicStep) -> Iterator[None]:
        """Run a block as an atomic step; see ``JobControl.atomic_step``."""
        name, undone_by = self._unique_name(name), self._undone_by(undo, True)
        if (done := self._find(name)) is not None:
            step.done, step.value = True, self._value(done)
            says = f"the atomic step {name!r} is done: write in its block only if not step.done."
            with refusing_writes(lambda alias: says):
                yield
            return
        with self._both(name, undone_by, step):
            yield

    def wait(
        self,
        name: str,
        *,
        event: str | None = None,
        delay: timedelta | float | None = None,
        until: datetime | None = None,
    ) -> Any:
        """Suspend the job until its time or its event has come; then return the recorded value."""
        milliseconds = None
        if until is None:
            milliseconds = _milliseconds(delay or 0)
        elif not isinstance(until, datetime) or until.tzinfo is None:
            raise InvalidOption(f"when must be a datetime with a time zone; it is {until!r}.")
        return self._wait(self._unique_name(name), event, milliseconds, until)

    def _wait(self, name: str, event: str | None, delay_ms: int | None = None, until: datetime | None = None) -> Any:
        if (done := self._find(name, waits=True)) is not None:
            return self._value(done)
        self._refuse_transaction(name)
        job = self._job
        times: dict[str, Any] = {"event": event, "delay_ms": delay_ms, "until": until}
        waited = engine.run(
            wait_step(job.seq, job.token, self._node, name, job.deliveries, self._next(), **times), self._using
        )
        if waited is None:
            raise LeaseLost(job.key or job.seq)
        if waited.value is None:
            self._control.passed(name)
            self._control.suspend(waited.left_ms, waits=event is not None)
        return codec.loads(waited.value)

    def wait_for_result(self, result: Result[Any], timeout: timedelta | float | None) -> Any:
        """See ``JobControl.wait_for_result``. The outcome is recorded first: later deliveries get the same."""
        delay_ms = MAX_SPAN_MS if timeout is None else _milliseconds(timeout)
        # Both in every delivery, so that repeated names keep their numbers and no warning says they are unknown.
        name, wait_name = self._unique_name(f"result {result.id}"), self._unique_name(f"wait {result.id}")
        event = result.ended_event()
        if (done := self._find(name)) is not None:
            text = self._text(done)
        else:
            self._refuse_transaction(name)
            if (heard := _outcome(result)) is None:
                self._wait(wait_name, event, delay_ms)
                heard = _outcome(result) or _other_end("timed out")
            text = self._plain_text(name, heard)
        if (waited := (self._known or {}).get(wait_name)) is not None and not waited.value:
            engine.run(forget_wait(self._job.seq, wait_name), self._using)
        value = codec.loads(text)
        if not text.startswith(_OTHER_END):
            return value
        end, *about = value
        if end == "timed out":
            raise EventTimeout(event)
        raise JobFailed(result.id, *about) if end == "failed" else JobCancelled(result.id)

    def _refuse_transaction(self, name: str) -> None:
        blocks: list[Any] = connections[self._using].atomic_blocks
        if any(not block._from_testcase for block in blocks):
            raise InvalidOption(f"{name!r} is inside of a transaction, which would stay open: sleep and wait outside.")

    def warn_of_unknown(self) -> None:
        """Log recorded steps that the code has not used: it has changed since then. They are ignored."""
        kept = {name: name.partition("#") for name in self._known or ()}
        if unknown := sorted(name for name, (base, _, count) in kept.items() if self._counts[base] < int(count or 1)):
            logger.warning(
                "Job %s has recorded steps that its code no longer knows, and ignores: %s",
                self._job.key or self._job.seq,
                ", ".join(unknown[:10]),
            )

    def _unique_name(self, name: str, retries: int = 0, backoff: float = 0.0) -> str:
        """Return the unique name of the next step with this name: ``name``, ``name#2``, ``name#3``."""
        self._control.raise_if_suspended()
        check_text(name, "the name of a step", 4 * MAX_STEP_NAME)
        if len(name) > MAX_STEP_NAME or "#" in name:
            raise InvalidOption(
                f"the name of a step has at most {MAX_STEP_NAME} characters and no '#'; it is {name!r:.250}."
            )
        check_integer(retries, "the retries of a step", 0, MAX_RETRIES)
        if seconds_of(backoff, "the backoff of a step") < 0:
            raise InvalidOption(f"the backoff of a step is in seconds, 0 or more; it is {backoff!r}.")
        if self._asked_for >= MAX_STEPS:
            raise InvalidOption(f"a job has at most {MAX_STEPS} steps: do more in each, or enqueue jobs for them.")
        self._asked_for += 1
        self._counts[name] += 1
        count = self._counts[name]
        return name if count == 1 else f"{name}#{count}"

    def _find(self, name: str, waits: bool = False) -> KeptStep | None:
        """Return the record of a step, or (``waits``) of a sleep or a wait, by an earlier delivery."""
        if self._known is None:
            # No delivery before has done any.
            if self._job.deliveries <= 1 and not self._job.flags & JobFlag.FAILED:
                self._known = {}
            else:
                self.load()
        assert self._known is not None
        found = self._known.get(name)
        if found is not None and found.waited != waits:
            raise _other_kind(name, found.waited)
        return found if found is not None and found.value else None

    def kept(self, name: str) -> Any:
        """Return the value that an earlier delivery recorded for a step; ``None`` without one."""
        found = self._find(name)
        return None if found is None else self._value(found)

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _text(self, step: KeptStep) -> str:
        return engine.run(load_step(step), self._using) if is_reference(step.value) else step.value

    def _value(self, step: KeptStep) -> Any:
        return codec.loads(self._text(step))

    def _keep(self, name: str, text: str, undone_by: str | None = None, whole: OneTransaction | None = None) -> None:
        check_ended(self._using)
        job = self._job
        number, locks = self._next(), not self._control.ends_in_transaction
        undo: dict[str, Any] = {"undo": undone_by, "opens": undone_by is not None and self.undo_note is None}
        kept_step = keep_step(job.seq, job.token, self._node, name, text, job.deliveries, number, locks=locks, **undo)
        held, kept, mark = engine.run(kept_step, self._using)
        if not held:
            raise LeaseLost(job.key or job.seq)
        if not kept:
            raise _Done
        if whole is not None:
            whole.check(mark)
        if undone_by is not None:
            self.undo_note = self.undo_note or {}

    def _plainly(self, name: str, value: Any, undone_by: str | None = None) -> Any:
        """Record the value of a step, and return it as later deliveries will get it."""
        return codec.loads(self._plain_text(name, step_text(name, value), undone_by))

    def _plain_text(self, name: str, text: str, undone_by: str | None = None) -> str:
        try:
            self._keep(name, text, undone_by)
        except _Done:
            text = self._theirs(name)
        self._control.passed(name)
        return text

    def _theirs(self, name: str) -> str:
        found = engine.run(read_steps(self._job.seq), self._using)[name]
        if found.waited:
            raise _other_kind(name, found.waited)
        return self._text(found)

    @contextmanager
    def _both(self, name: str, undone_by: str | None, step: AtomicStep) -> Iterator[None]:
        """Run the block and record the step's value in one transaction."""
        try:
            with atomic_run(self._control, f"the atomic step {name!r}") as whole:
                yield
                self._keep(name, text := step_text(name, step.value), undone_by, whole)
        except _Done:
            text = self._theirs(name)
        step.value = codec.loads(text)
        self._control.passed(name)

    def _in_transaction(self, name: str, call: Callable[[], Any], undone_by: str | None = None) -> Any:
        step = AtomicStep(name, partial(self._both, name, undone_by))
        with self._both(name, undone_by, step):
            step.value = call()
            if inspect.isawaitable(step.value):
                step.value.close()  # type: ignore[attr-defined]
                raise InvalidOption(f"the atomic step {name!r} is a coroutine, but Django's transactions are sync.")
        return step.value


def _other_kind(name: str, waited: bool) -> InvalidOption:
    before, now = ("a sleep or a wait", "a step") if waited else ("a step", "a sleep or a wait")
    return InvalidOption(
        f"{name!r} was recorded as {before} of this job, and is {now} in the code now: give it another name, or let the"
        " job begin again from there (from_step)."
    )


def _milliseconds(time: timedelta | float) -> int:
    return check_integer(int(seconds_of(time, "the time") * 1_000), "the time in ms", 0, MAX_SPAN_MS)


#: The value of another task is recorded unchanged, so it may have any size. Other outcomes begin with a space, which no
#: JSON of ours does.
_OTHER_END = " "


def _other_end(*about: object) -> str:
    return _OTHER_END + codec.dumps(about)


def _outcome(result: Result[Any]) -> str | None:
    """Return the outcome of another task as text to record; ``None`` while it runs."""
    try:
        found = result.outcome()
    except JobFailed as error:
        return _other_end("failed", error.error_type, error.error, error.deliveries)
    except JobCancelled:
        return _other_end("cancelled")
    return None if found is None else step_text(f"result {result.id}", found[0])
