"""Bases of the models: read-only models that the engine writes, and the triggers that refuse other writes."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self, TypeVar

import pgtrigger
from django.db import models
from pgtrigger import compiler

from ..exceptions import WrittenByEngine

M = TypeVar("M", bound=models.Model)


class ReadOnlyQuerySet(models.QuerySet[M]):
    """A queryset that refuses to write, and names the call to use."""

    def _refuse(self, call: str) -> NoReturn:
        instead: dict[str, str] = getattr(self.model, "instead", {})
        raise WrittenByEngine(self.model.__name__, call, instead.get(call, ""))

    def create(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("create")

    def update(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("update")

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("delete")

    bulk_create = get_or_create = update_or_create = create
    bulk_update = update
    _raw_delete = delete


class ReadOnlyManager(models.Manager[M]):
    """Gives such querysets."""

    def get_queryset(self) -> ReadOnlyQuerySet[M]:
        return ReadOnlyQuerySet(self.model, using=self._db)


class ReadOnlyModel(models.Model):
    """Base of such models."""

    #: What to call in place of ``create``, ``update`` and ``delete``.
    instead: ClassVar[dict[str, str]] = {}
    #: What a row is called.
    says: ClassVar[str] = "{0.pk}"

    objects: ClassVar[models.Manager[Self]] = ReadOnlyManager()

    class Meta:
        abstract = True
        # Of all that inherit it: what Django does by itself is refused by name as well.
        base_manager_name = "objects"

    def __str__(self) -> str:
        return self.says.format(self)

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("create" if self._state.adding else "update")

    def _save_table(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse ``loaddata`` as well, which does not call ``save``."""
        self._refuse("create")

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("delete")

    def _refuse(self, call: str) -> NoReturn:
        raise WrittenByEngine(type(self).__name__, call, self.instead.get(call, ""))


class LocalTrigger(pgtrigger.Trigger):
    """A trigger whose text does not depend on the host's settings."""

    def compile(self, model: Any) -> compiler.Trigger:
        """Compile without the host's PGTRIGGER_SCHEMA, so that a host's setting never makes our migrations differ."""
        return compiler.Trigger(
            name=self.name,
            sql=compiler.UpsertTriggerSql(
                ignore_func_name="_pgtrigger_should_ignore",
                pgid=self.get_pgid(model),
                func=self.render_func(model),
                table=model._meta.db_table,
                when=self.when,
                operation=self.operation,
                level=self.level,
                condition=self.render_condition(model),
            ),
        )


class Guard(LocalTrigger):
    """Refuses the rows that match its condition.

    Raises SQLSTATE 23514 with a constraint name, which Django turns into ``IntegrityError``.

    The condition is evaluated without a function call, so a legal change costs next to nothing. Maintenance passes with
    ``pgtrigger.ignore("leasequeue.<Model>:<name>")``.
    """

    def __init__(self, *, constraint: str, message: str, **kwargs: Any) -> None:
        self.constraint = constraint
        self.message = message
        super().__init__(**kwargs)

    def get_func(self, model: Any) -> str:
        quoted = self.message.replace("'", "''")
        return f"RAISE EXCEPTION USING ERRCODE = '23514', CONSTRAINT = '{self.constraint}', MESSAGE = '{quoted}';"
