"""Atomic parts of a run: one transaction in the database of the job, which refuses writes to others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from .. import conf
from ..engine.write_guard import OneTransaction, refusing_writes
from ..exceptions import InvalidOption

if TYPE_CHECKING:
    from .control import JobControl


class AtomicStep:
    """An atomic step that is a block: ``with current().atomic_step(name) as step``."""

    def __init__(self, name: str, block: Callable[[AtomicStep], AbstractContextManager[None]]) -> None:
        self._name, self._block = name, block
        #: Whether an earlier delivery has done it: then the block can read ``value`` and may not write.
        self.done = False
        #: The value of the step, JSON: the block sets it.
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
            f"the atomic step {self._name!r} is a block in a coroutine, but Django's transactions are sync: write"
            f" await current().astep({self._name!r}, function, atomic=True)."
        )


def database_of(control: JobControl) -> str:
    """Return the alias of the database of a job, in which its atomic parts run."""
    return control.using or conf.settings.DATABASE


@contextmanager
def atomic_run(control: JobControl, what: str) -> Iterator[OneTransaction]:
    """Run the block in one transaction of the job's database, which it yields; refuse writes to other databases."""
    whole = OneTransaction(using := database_of(control), what)

    def says(alias: str) -> str:
        return (
            f"{what} writes to the database {alias!r} or locks rows there, and its job is in {using!r}: that is not one"
            " transaction. Make it a plain step that may run again, or keep the jobs beside that data (ROUTER)."
        )

    with whole.begun(), refusing_writes(says, but=using):
        yield whole
