"""Migrations hold columns, indexes, constraints and permissions of the models; new words need no migration.

`base.py` imports it before any model is made: Django takes fields by ``Field.clone``, options from ``original_attrs``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import models
from django.db.models.signals import class_prepared
from django.dispatch import receiver

#: Arguments of fields that only Python reads. Defaults of columns are in the database: ``db_default``.
FIELD_ARGUMENTS = frozenset({
    "auto_created", "auto_now", "auto_now_add", "blank", "choices", "default", "editable", "error_messages",
    "help_text", "serialize", "validators", "verbose_name",
})  # fmt: skip
#: Attributes of ``Meta`` that only Python reads.
OPTIONS = ("base_manager_name", "get_latest_by", "verbose_name", "verbose_name_plural")


@receiver(class_prepared)
def leave_out(sender: type[models.Model], **kwargs: Any) -> None:
    """Keep what only Python reads out of the migrations of one of our models."""
    if not sender.__module__.startswith(f"{__package__}."):
        return
    for field in sender._meta.local_fields:
        vars(field)["clone"] = partial(column, field)
    for name in OPTIONS:
        sender._meta.original_attrs.pop(name, None)


def column(field: models.Field[Any, Any]) -> models.Field[Any, Any]:
    """Return a field with the same column."""
    _, _, arguments, options = field.deconstruct()
    kept = {name: value for name, value in options.items() if name not in FIELD_ARGUMENTS}
    if "base_field" in kept:
        kept["base_field"] = column(kept["base_field"])
    made: models.Field[Any, Any] = type(field)(*arguments, **kept)
    return made
