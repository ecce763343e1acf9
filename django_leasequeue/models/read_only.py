"""Models that are read, never written: what changes their rows is the engine."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, TypeVar

from django.db import models

from ..exceptions import WrittenByEngine

M = TypeVar("M", bound=models.Model)


class ReadOnlyQuerySet(models.QuerySet[M]):
    """A queryset that refuses to write, and names the call to use."""

    def _refuse(self, call: str) -> NoReturn:
        instead: dict[str, str] = getattr(self.model, "instead", {})
        raise WrittenByEngine(self.model.__name__, call, instead.get(call, ""))

    def create(self, **kwargs: Any) -> NoReturn:
        self._refuse("create")

    def bulk_create(self, objs: Any, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("create")

    def get_or_create(self, defaults: Any = None, **kwargs: Any) -> NoReturn:
        self._refuse("create")

    def update_or_create(self, defaults: Any = None, create_defaults: Any = None, **kwargs: Any) -> NoReturn:
        self._refuse("create")

    def update(self, **kwargs: Any) -> NoReturn:
        self._refuse("update")

    def bulk_update(self, objs: Any, fields: Any, batch_size: int | None = None) -> NoReturn:
        self._refuse("update")

    def delete(self) -> NoReturn:
        self._refuse("delete")

    def _raw_delete(self, using: Any) -> NoReturn:
        self._refuse("delete")


class ReadOnlyManager(models.Manager[M]):
    """Gives such querysets."""

    def get_queryset(self) -> ReadOnlyQuerySet[M]:
        return ReadOnlyQuerySet(self.model, using=self._db)


class ReadOnlyModel(models.Model):
    """Base of such models. ``instead`` says for ``create``, ``update`` and ``delete`` what to call."""

    instead: ClassVar[dict[str, str]] = {}

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("create" if self._state.adding else "update")

    def _save_table(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse ``loaddata`` as well, which does not call ``save``."""
        self._refuse("create")

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("delete")

    def _refuse(self, call: str) -> NoReturn:
        raise WrittenByEngine(type(self).__name__, call, self.instead.get(call, ""))
