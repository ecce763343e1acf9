"""Steps, sleeps and waits of a job, done once over all deliveries: ``job.steps`` in a handler of ``Worker``."""

from __future__ import annotations

import hashlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from ..exceptions import EventTimeout, InvalidOption
from ..twins import Body, Either, Twins, either, sync, twin
from .messages import ClientJob, LeaseLost, Suspension

if TYPE_CHECKING:
    from .client import AsyncClient, Client

MAX_NAME = 200


class Suspended(BaseException):
    """The job is suspended until its time or its event. Raised in its handler; neither ack nor nack the job."""


class _Steps(Twins):
    """The common part of steps in functions and in coroutines."""

    def __init__(self, client: Client | AsyncClient, node: str, job: ClientJob) -> None:
        self._client, self._node, self._job = client, node, job
        self._names: Counter[str] = Counter()
        self._known: dict[str, Any] | None = None

    def step_key(self, name: str) -> str:
        """Return a text that is unique for a step of a job and equal in each delivery: an external idempotency key."""
        return f"{self._job.topic}:{self._job.seq}:{name}"

    def _unique_name(self, name: str) -> str:
        if "#" in name:
            raise InvalidOption(f"name must have no '#'; it is {name!r}.")
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}#{self._names[name]}"

    @contextmanager
    def _under_lease(self) -> Iterator[None]:
        try:
            yield
        except LeaseLost:
            self._job.lose()
            raise

    def _ask(self, call: str, *args: Any, **kwargs: Any) -> Either:
        """Return the step that calls the client for the job."""
        method = partial(getattr(self._client, call), self._node, self._job, *args, **kwargs)
        return either(method, method)

    @staticmethod
    def _over(waited: Suspension, event: str | None = None) -> Any:
        if waited.suspended:
            raise Suspended
        if waited.timed_out:
            raise EventTimeout(event or "")
        return waited.payload


async def _value(function: Callable[[], Any]) -> Any:
    """Return the value of a function or coroutine function."""
    value = function()
    return await value if inspect.isawaitable(value) else value


class JobSteps(_Steps):
    """The steps of a job in a function."""

    @sync
    def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Body[Any]:
        """Run a part of the job once: later deliveries get its recorded value instead.

        It runs again if the worker dies between its end and its record: give the other side ``step_key``. ``name`` has
        1 to 200 characters, without ``#``; the same name again in one run is another step (``name#2``). ``function``
        returns JSON; in a coroutine it may be a coroutine function. ``LeaseLost``: the step is not recorded.
        """
        unique_name = self._unique_name(name)
        with self._under_lease():
            if self._known is None:
                self._known = yield self._ask("read_steps")
            if unique_name in self._known:
                return self._known[unique_name]
            work = partial(function, *args, **kwargs)
            value = yield either(work, partial(_value, work))
            return (yield self._ask("record_step", unique_name, value))

    @sync
    def sleep(self, /, name: str, **units: float) -> Body[None]:
        """Suspend the job for a time, in the units of ``timedelta``."""
        milliseconds = round(timedelta(**units).total_seconds() * 1_000)
        with self._under_lease():
            self._over((yield self._ask("suspend", name=self._unique_name(name), sleep_ms=milliseconds)))

    @sync
    def sleep_until(self, name: str, when: datetime) -> Body[None]:
        """Suspend the job until a time: see ``sleep``."""
        with self._under_lease():
            self._over((yield self._ask("suspend", name=self._unique_name(name), until=when)))

    @sync
    def wait_for(self, event: str, timeout: timedelta | float | None = None) -> Body[Any]:
        """Suspend the job until an event is emitted; return its payload.

        ``EventTimeout``: it did not come in time.
        """
        # The server's default name; a repeated wait gets a number.
        shown = f"event {event}".replace("#", "%23")
        shown = shown if len(shown) <= MAX_NAME else f"event {hashlib.sha256(event.encode()).hexdigest()}"
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        asked = {} if seconds is None else {"timeout_ms": round(seconds * 1_000)}
        with self._under_lease():
            return self._over((yield self._ask("suspend", event=event, name=self._unique_name(shown), **asked)), event)


class AsyncJobSteps(_Steps):
    """The steps of a job in a coroutine function: see ``JobSteps``."""

    step = twin(JobSteps.step, "step")
    sleep = twin(JobSteps.sleep, "sleep")
    sleep_until = twin(JobSteps.sleep_until, "sleep_until")
    wait_for = twin(JobSteps.wait_for, "wait_for")
