"""Relations between rows that have a number or a name in common, without a foreign key in the database."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.fields.related_descriptors import ForwardManyToOneDescriptor


class _OrNone(ForwardManyToOneDescriptor):
    """The other row, or ``None``: most jobs have no dead letter, and live ones no result."""

    def get_object(self, instance: Any) -> Any:
        try:
            return super().get_object(instance)
        except self.field.remote_field.model.DoesNotExist:
            return None


class SameNumber(models.ForeignObject):
    """The row of another model whose columns have the same values; ``None`` if there is none.

    Args:
        to: the other model.
        here, there: the fields that are compared.
        related_name: of the way back; none by default.
    """

    forward_related_accessor_class = _OrNone

    def __init__(
        self, to: Any, here: str = "seq", there: str = "seq", *, related_name: str = "+", **kwargs: Any
    ) -> None:
        # What Django's migrations and clones say again of every relation of this kind.
        for name in ("on_delete", "from_fields", "to_fields", "null", "blank", "editable", "serialize"):
            kwargs.pop(name, None)
        super().__init__(
            to,
            models.DO_NOTHING,
            [here],
            [there],
            related_name=related_name,
            null=True,
            blank=True,
            editable=False,
            serialize=False,
            **kwargs,
        )
        self.here, self.there = here, there

    def deconstruct(self) -> Any:
        name, path, _, kwargs = super().deconstruct()
        kwargs = {
            "to": kwargs["to"],
            "here": self.here,
            "there": self.there,
            "related_name": self.remote_field.related_name or "+",
        }
        return name, path, [], kwargs
