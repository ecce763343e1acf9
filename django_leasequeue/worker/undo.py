"""Undoing the steps of a job: the functions that do it, how the steps' records name them, the note of why."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from asgiref.sync import async_to_sync
from django.utils.module_loading import import_string

from .. import engine
from ..engine import codec
from ..engine.jobs.cancel import CANCELLED, NOTE, forget_undone, note_undo
from ..engine.jobs.steps import KeptStep, read_steps
from ..exceptions import InvalidOption, LeaseLost, LeaseQueueError
from .atomic import database_of

if TYPE_CHECKING:
    from .control import JobControl

Undo = Callable[[Any], object]


class UndoFailed(LeaseQueueError):
    """The undo of a step has raised: its cause is that error. It is tried again."""

    log_line = "Undoing the steps of a job failed and will be tried again"

    def __init__(self, step: str | None = None) -> None:
        super().__init__("undoing its steps failed" if step is None else f"the undo of the step {step!r} failed")


def _undo_text(undo: Undo, atomic: bool) -> str:
    """Return the text by which a later process finds the function: its import path, and whether it is atomic."""
    path, found = f"{getattr(undo, '__module__', '')}.{getattr(undo, '__qualname__', '')}", None
    with suppress(ImportError, ValueError):
        found = import_string(path)
    if found is not undo or not callable(undo):
        raise InvalidOption(
            "undo must be a function at the top of a module: a later process imports it by its name. It is"
            f" {undo!r:.200}."
        )
    if atomic and iscoroutinefunction(undo):
        raise InvalidOption(
            f"undo of an atomic step must be a plain function, as Django's transactions are sync; it is {undo!r:.200}."
        )
    return f"{path} atomic" if atomic else path


def _call(path: str, value: Any) -> None:
    """Undo a step that has returned ``value``."""
    function = import_string(path)
    (async_to_sync(function) if iscoroutinefunction(function) else function)(value)


class UndoneSteps(ABC):
    """The part of a job's steps that undoes them: ``JobSteps`` has the rest."""

    def __init__(self, control: JobControl) -> None:
        self._control, self._job, self._node = control, control.job, control.node
        self._using = database_of(control)
        self._known: dict[str, KeptStep] | None = None
        #: The number of the last step.
        self._last = 0
        #: The note of a job with steps to undo, as it was read last; empty if this run has made it.
        self.undo_note: dict[str, Any] | None = None

    @abstractmethod
    def _value(self, step: KeptStep) -> Any: ...

    @abstractmethod
    def _plainly(self, name: str, value: Any) -> Any: ...

    @abstractmethod
    def _in_transaction(self, name: str, call: Callable[[], Any]) -> Any: ...

    def load(self, *, forgets: bool = True) -> None:
        """Read the recorded steps; with ``forgets`` forget those that are undone."""
        job = self._job
        known = engine.run(read_steps(job.seq), self._using)
        self.undo_note = codec.loads(known.pop(NOTE).value) if NOTE in known else None
        if forgets and self.undo_note and self.undo_note.get("done") and self.undo_note["why"] != CANCELLED:
            if not engine.run(forget_undone(job.seq, job.token, self._node), self._using):
                raise LeaseLost(job.key or job.seq)
            known = engine.run(read_steps(job.seq), self._using)
            self.undo_note = None
        self._known, self._last = known, max((step.number for step in known.values()), default=0)

    def _undone_by(self, undo: Undo | None, atomic: bool) -> str | None:
        if undo is None:
            return None
        if not self._control.undoes_steps or self._control.ends_in_transaction:
            raise InvalidOption("undo is for the steps of tasks that are not atomic: what these do is rolled back.")
        return _undo_text(undo, atomic)

    @property
    def undoing(self) -> bool:
        """Whether this delivery only undoes steps: that has begun, or the task has used up its deliveries."""
        note = self.undo_note or {"max": 0}
        return note.get("why") is not None or 0 < note["max"] < self._job.deliveries

    def note(self, change: dict[str, Any], **settings: int | None) -> None:
        """Add to the note of the job; ``settings``: as of ``note_undo``."""
        job = self._job
        if not engine.run(note_undo(job.seq, job.token, self._node, change, **settings), self._using):
            raise LeaseLost(job.key or job.seq)
        self.undo_note = {**(self.undo_note or {}), **change}

    def undo_all(self) -> None:
        """Undo what the recorded steps did, the last one first. Each undo is a step."""
        for step in sorted((self._known or {}).values(), key=lambda step: -step.number):
            if step.undo is None or (name := f"{NOTE} {step.name}") in (self._known or {}):
                continue
            path, _, atomic = step.undo.partition(" ")
            try:
                call = partial(_call, path, self._value(step))
                if atomic:
                    self._in_transaction(name, call)
                else:
                    self._plainly(name, call())
            except Exception as error:
                if self._control.lost or isinstance(error, LeaseLost):
                    raise
                raise UndoFailed(step.name) from error
