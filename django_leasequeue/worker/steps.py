"""Steps of a running job: each runs once, and a later delivery of the job goes on behind the last one that is done."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from .. import conf, engine
from ..engine import codec
from ..engine.jobs.steps import KeptStep, keep_step, load_step, read_steps, step_text, wait_step
from ..engine.limits import MAX_SPAN_MS, MAX_STEP_NAME, MAX_STEPS, check_integer, check_text, seconds_of
from ..engine.store import is_reference
from ..enums import JobFlag
from ..exceptions import EventTimeout, InvalidOption, JobCancelled, JobFailed, LeaseLost, PayloadTooLarge

if TYPE_CHECKING:
    from .control import JobControl
    from .durable import Result

logger = logging.getLogger("django_leasequeue.worker")

MAX_RETRIES = 100
_READS = ("select", "with", "show", "savepoint", "release", "rollback", "set")


class _Done(Exception):
    """Another run has done the step meanwhile: this transaction is rolled back, and the other's value counts."""


class AtomicStep:
    """An atomic step that is a block: ``with current().atomic_step(name) as step``."""

    def __init__(self, name: str, block: Callable[[AtomicStep], AbstractContextManager[None]]) -> None:
        self._name, self._block = name, block
        #: Whether an earlier delivery has done it: the block then reads ``value``, and a write in it is refused.
        self.done = False
        #: What the step returns, as JSON: the block sets it. ``None`` unless it does.
        self.value: Any = None

    def __enter__(self) -> AtomicStep:
        with suppress(RuntimeError):  # a thread has no loop
            asyncio.get_running_loop()
            raise self._refused()
        self._running = self._block(self)
        self._running.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._running.__exit__(*error)

    async def __aenter__(self) -> NoReturn:
        raise self._refused()

    async def __aexit__(self, *error: object) -> None: ...

    def _refused(self) -> InvalidOption:
        return InvalidOption(
            f"the atomic step {self._name!r} is a block in a coroutine, and a transaction of Django is sync: write"
            f" await current().astep({self._name!r}, function, atomic=True)."
        )


class JobSteps:
    """The steps of one run. Made by ``JobControl`` when it is asked for the first one."""

    def __init__(self, control: JobControl) -> None:
        self._control, self._job, self._node = control, control.job, control.node
        self._using = database_of(control)
        self._known: dict[str, KeptStep] | None = None
        #: The place of the last step in their order.
        self._last = 0
        self._names: Counter[str] = Counter()
        self._asked_for = 0

    def run(self, name: str, call: Callable[[], Any], *, atomic: bool, retries: int, backoff: float) -> Any:
        """Return what the step has returned; run it if it is not done. See ``JobControl.step``."""
        place = self._place(name, retries, backoff)
        if (done := self._find(place)) is not None:
            return self._value(done)
        for left in reversed(range(retries + 1)):
            try:
                return self._in_transaction(place, call) if atomic else self._plainly(place, call())
            except (LeaseLost, InvalidOption, PayloadTooLarge):
                raise
            except Exception:
                if not left or self._control.lost:
                    raise
                time.sleep(backoff)
        raise AssertionError

    async def arun(self, name: str, call: Callable[[], Any], *, atomic: bool, retries: int, backoff: float) -> Any:
        """See ``run``; a coroutine that the step's function returns is awaited."""
        place = self._place(name, retries, backoff)
        find = sync_to_async(self._find) if self._known is None else None
        if (done := self._find(place) if find is None else await find(place)) is not None:
            return await sync_to_async(self._value)(done) if is_reference(done.value) else codec.loads(done.value)
        for left in reversed(range(retries + 1)):
            try:
                if atomic:
                    return await sync_to_async(self._in_transaction)(place, call)
                value = call()
                return await sync_to_async(self._plainly)(place, await value if inspect.isawaitable(value) else value)
            except (LeaseLost, InvalidOption, PayloadTooLarge):
                raise
            except Exception:
                if not left or self._control.lost:
                    raise
                await asyncio.sleep(backoff)
        raise AssertionError

    @contextmanager
    def block(self, name: str, step: AtomicStep) -> Iterator[None]:
        """Run a block as an atomic step; see ``JobControl.atomic_step``."""
        place = self._place(name)
        if (done := self._find(place)) is not None:
            step.done, step.value = True, self._value(done)
            says = f"the atomic step {place!r} is done: write in its block only if not step.done."
            with _refusing_writes(lambda alias: says):
                yield
            return
        with self._both(place, step):
            yield

    def wait(
        self,
        name: str,
        *,
        event: str | None = None,
        delay: timedelta | float | None = None,
        until: datetime | None = None,
    ) -> Any:
        """Give the job's place up until its time or its event has come; return what is kept when it has."""
        milliseconds = None
        if until is None:
            milliseconds = int(seconds_of(delay or 0, "the time") * 1_000)
            check_integer(milliseconds, "the time in ms", 0, MAX_SPAN_MS)
        elif not isinstance(until, datetime) or until.tzinfo is None:
            raise InvalidOption(f"a task sleeps until a datetime with a time zone; it is {until!r}.")
        place = self._place(name)
        if (done := self._find(place, waits=True)) is not None:
            return self._value(done)
        blocks: list[Any] = connections[self._using].atomic_blocks
        if any(not block._from_testcase for block in blocks):
            raise InvalidOption(
                f"{place!r} is inside of a transaction, which would stay open: sleep and wait outside of it."
            )
        job = self._job
        times: dict[str, Any] = {"event": event, "delay_ms": milliseconds, "until": until}
        waited = engine.run(
            wait_step(job.seq, job.token, self._node, place, job.deliveries, self._next(), **times), self._using
        )
        if waited is None:
            raise LeaseLost(job.key or job.seq)
        if waited.value is None:
            self._control.passed(place)
            self._control.suspend(waited.left_ms, waits=event is not None)
        return codec.loads(waited.value)

    def wait_for_result(self, result: Result[Any], timeout: timedelta | float | None) -> Any:
        """See ``JobControl.wait_for_result``. What has become of it is kept: a result is forgotten one day."""
        place = self._place(f"result {result.id}")
        if (done := self._find(place)) is None:
            if (ended := _ended(result)) is None:
                delay = MAX_SPAN_MS / 1_000 if timeout is None else timeout
                self.wait(f"wait {result.id}", event=result.ended_event(), delay=delay)
                if (ended := _ended(result)) is None:
                    raise EventTimeout(result.ended_event())
            ended = self._plainly(place, ended)
        else:
            self._names[f"wait {result.id}"] += 1
            ended = self._value(done)
        if "value" not in ended:
            raise JobFailed(result.id, *ended["failed"]) if "failed" in ended else JobCancelled(result.id)
        return ended["value"]

    def warn_of_unknown(self) -> None:
        """Say once that the code has not asked for some of its steps: it has changed since then. They are ignored."""
        places = {place: place.partition("#") for place in self._known or ()}
        if unknown := sorted(
            place for place, (name, _, count) in places.items() if self._names[name] < int(count or 1)
        ):
            logger.warning(
                "Job %s has kept steps that its code does not know any more, and ignores: %s",
                self._job.key or self._job.seq,
                ", ".join(unknown[:10]),
            )

    def _place(self, name: str, retries: int = 0, backoff: float = 0.0) -> str:
        """Return the name under which the next step of this name is kept: ``name``, ``name#2``, ``name#3``."""
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
        self._names[name] += 1
        count = self._names[name]
        return name if count == 1 else f"{name}#{count}"

    def _find(self, place: str, waits: bool = False) -> KeptStep | None:
        """Return what an earlier delivery has kept of a step, or (``waits``) of a sleep or a wait."""
        if self._known is None:
            # No delivery before has done any.
            fresh = self._job.deliveries <= 1 and not self._job.flags & JobFlag.FAILED
            self._known = {} if fresh else engine.run(read_steps(self._job.seq), self._using)
            self._last = max((step.number for step in self._known.values()), default=0)
        found = self._known.get(place)
        if found is not None and found.waited != waits:
            raise _other_kind(place, found.waited)
        return found if found is not None and found.value else None

    def kept(self, name: str) -> Any:
        """Return what an earlier delivery has kept of the first step of a name; ``None`` if there is none."""
        found = self._find(name)
        return None if found is None else self._value(found)

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _value(self, step: KeptStep) -> Any:
        return codec.loads(engine.run(load_step(step), self._using) if is_reference(step.value) else step.value)

    def _keep(self, place: str, value: Any) -> Any:
        """Keep what the step returned, and return it as a later delivery will have it."""
        job, text = self._job, step_text(place, value)
        kept_step = keep_step(job.seq, job.token, self._node, place, text, job.deliveries, self._next())
        held, kept = engine.run(kept_step, self._using)
        if not held:
            raise LeaseLost(job.key or job.seq)
        if not kept:
            raise _Done
        return codec.loads(text)

    def _plainly(self, place: str, value: Any) -> Any:
        try:
            value = self._keep(place, value)
        except _Done:
            value = self._theirs(place)
        self._control.passed(place)
        return value

    def _theirs(self, place: str) -> Any:
        found = engine.run(read_steps(self._job.seq), self._using)[place]
        if found.waited:
            raise _other_kind(place, found.waited)
        return self._value(found)

    @contextmanager
    def _both(self, place: str, step: AtomicStep) -> Iterator[None]:
        """Run what is inside and keep the step's value in one transaction: both, or neither."""
        try:
            with atomic_run(self._control, f"the atomic step {place!r}"):
                yield
                step.value = self._keep(place, step.value)
        except _Done:
            step.value = self._theirs(place)
        self._control.passed(place)

    def _in_transaction(self, place: str, call: Callable[[], Any]) -> Any:
        step = AtomicStep(place, partial(self._both, place))
        with self._both(place, step):
            step.value = call()
            if inspect.isawaitable(step.value):
                step.value.close()  # type: ignore[attr-defined]
                raise InvalidOption(f"the atomic step {place!r} is a coroutine: a transaction of Django is sync.")
        return step.value


def _other_kind(place: str, waited: bool) -> InvalidOption:
    before, now = ("a sleep or a wait", "a step") if waited else ("a step", "a sleep or a wait")
    return InvalidOption(
        f"{place!r} was {before} of this job when it was kept, and is {now} in the code now: give it another name, or"
        " let the job begin again from there (from_step)."
    )


def _ended(result: Result[Any]) -> dict[str, Any] | None:
    """Return what has become of another task, as it is kept; ``None`` while it goes on."""
    try:
        found = result.outcome()
    except JobFailed as error:
        return {"failed": [error.error_type, error.error, error.deliveries]}
    except JobCancelled:
        return {"cancelled": True}
    return None if found is None else {"value": found[0]}


def database_of(control: JobControl) -> str:
    """Return the alias of the database in which a job's atomic parts run: that of the job."""
    return control.using or conf.settings.DATABASE


@contextmanager
def atomic_run(control: JobControl, what: str) -> Iterator[str]:
    """Run what is inside in one transaction of the job's database, whose alias it yields; refuse writes elsewhere."""
    using = database_of(control)

    def says(alias: str) -> str:
        return (
            f"{what} writes to the database {alias!r}, and its job is in {using!r}: that is not one transaction. Make"
            " it a plain one that may run again, or keep the jobs beside that data (ROUTER)."
        )

    with transaction.atomic(using=using), _refusing_writes(says, but=using):
        yield using


@contextmanager
def _refusing_writes(says: Callable[[str], str], but: str | None = None) -> Iterator[None]:
    """Refuse writes to all databases ``but`` one, with what is said of the alias."""

    def refuse(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if str(sql).lstrip().lower().startswith(_READS):
            return execute(sql, params, many, context)
        raise InvalidOption(says(context["connection"].alias))

    with ExitStack() as stack:
        for connection in connections.all():
            if connection.alias != but:
                stack.enter_context(connection.execute_wrapper(refuse))
        yield
