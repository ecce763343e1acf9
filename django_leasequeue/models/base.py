"""The base of the models: read-only models, triggers, JSON fields, relations without a foreign key."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, ClassVar, NoReturn, Self, TypeVar

import pgtrigger
from django.db import models
from django.db.models.expressions import Col
from django.db.models.fields import json as django_json
from django.db.models.fields.json import KeyTransform, KeyTransformFactory
from django.db.models.fields.related_descriptors import ForwardManyToOneDescriptor
from django.db.models.fields.related_lookups import RelatedIsNull
from django.db.models.lookups import IsNull
from django.db.models.signals import class_prepared
from django.dispatch import receiver
from pgtrigger import compiler

from ..exceptions import WrittenByEngine

M = TypeVar("M", bound=models.Model)

# Migrations hold columns, indexes, constraints and permissions of the models; new words need no migration. Django takes
# fields by ``Field.clone``, options from ``original_attrs``.

#: Arguments of fields that only Python reads. Defaults of columns are in the database: ``db_default``.
_FIELD_ARGUMENTS = frozenset({
    "auto_created", "auto_now", "auto_now_add", "blank", "choices", "default", "editable", "error_messages",
    "help_text", "serialize", "validators", "verbose_name",
})  # fmt: skip
#: Attributes of ``Meta`` that only Python reads.
_OPTIONS = ("base_manager_name", "get_latest_by", "verbose_name", "verbose_name_plural")


@receiver(class_prepared)
def _leave_out(sender: type[models.Model], **kwargs: Any) -> None:
    """Keep what only Python reads out of the migrations of one of our models."""
    if not sender.__module__.startswith(f"{__package__}."):
        return
    for field in sender._meta.local_fields:
        vars(field)["clone"] = partial(_column, field)
    for name in _OPTIONS:
        sender._meta.original_attrs.pop(name, None)


def _column(field: models.Field[Any, Any]) -> models.Field[Any, Any]:
    """Return a field with the same column."""
    _, _, arguments, options = field.deconstruct()
    kept = {name: value for name, value in options.items() if name not in _FIELD_ARGUMENTS}
    if "base_field" in kept:
        kept["base_field"] = _column(kept["base_field"])
    made: models.Field[Any, Any] = type(field)(*arguments, **kept)
    return made


def _refuse(model: Any, call: str) -> NoReturn:
    raise WrittenByEngine(model.__name__, call, model.instead.get(call, ""))


class ReadOnlyQuerySet(models.QuerySet[M]):
    """A queryset that refuses writes and names the right call."""

    def create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model, "create")

    def update(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model, "update")

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model, "delete")

    bulk_create = get_or_create = update_or_create = create
    bulk_update = update
    _raw_delete = delete


class ReadOnlyManager(models.Manager[M]):
    """A manager whose querysets refuse writes."""

    def get_queryset(self) -> ReadOnlyQuerySet[M]:
        return ReadOnlyQuerySet(self.model, using=self._db)


class ReadOnlyModel(models.Model):
    """Base of the models whose rows the engine writes."""

    #: The right calls instead of ``create``, ``update`` and ``delete``.
    instead: ClassVar[dict[str, str]] = {}
    #: The format of ``str``.
    says: ClassVar[str] = "{0.pk}"

    objects: ClassVar[models.Manager[Self]] = ReadOnlyManager()

    class Meta:
        abstract = True
        # Inherited: writes by Django itself are refused as well.
        base_manager_name = "objects"

    def __str__(self) -> str:
        return self.says.format(self)

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(type(self), "create" if self._state.adding else "update")

    def _save_table(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse ``loaddata``, which does not call ``save``."""
        _refuse(type(self), "create")

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(type(self), "delete")


class LocalTrigger(pgtrigger.Trigger):
    """A trigger whose text does not depend on the host's settings."""

    def compile(self, model: Any) -> compiler.Trigger:
        """Compile without the host's PGTRIGGER_SCHEMA, so that our migrations are the same everywhere."""
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
    """Refuses rows that match its condition with SQLSTATE 23514, in Django an ``IntegrityError``.

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


class PlainJSONField(models.JSONField):
    """A ``json`` column: it returns numbers as written (``1e300``, ``1.0``), and the database does not parse its input.

    Lookups and expressions use ``leasequeue_jsonb(column)``: ``jsonb``, or null for values that only ``json`` can hold
    (U+0000, a lone surrogate, a number out of range). An index on that expression serves them.
    """

    def db_type(self, connection: Any) -> str:
        return "json"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        # psycopg parses json by itself, but neither jsonb (Django turns that off) nor text.
        written = isinstance(expression, (PlainCol, PlainKeyTransform)) and not expression.compared
        return json.loads(value) if isinstance(value, str) and not written else value

    def get_col(self, alias: str, output_field: Any = None) -> Col:
        return PlainCol(alias, self, output_field)

    def get_transform(self, lookup_name: str) -> Any:
        found = super().get_transform(lookup_name)
        return partial(PlainKeyTransform, lookup_name) if isinstance(found, KeyTransformFactory) else found


def _compares(query: Any) -> bool:
    """Return whether a query compares its rows, which PostgreSQL cannot do with ``json``."""
    combined = query.combinator or getattr(query, "combined", False)
    return bool(query.distinct or combined or query.group_by is not None)


class PlainCol(Col):
    """The column: ``jsonb`` in an expression; selected as written, or as text if rows are compared."""

    compared = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        return f"leasequeue_jsonb({self.written(compiler, connection)})", []

    def written(self, compiler: Any, connection: Any) -> str:
        """Return the column itself."""
        return super().as_sql(compiler, connection)[0]

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        self.compared = _compares(compiler.query)
        if compiler.query.subquery:
            return sql, params
        return self.written(compiler, compiler.connection) + ("::text" if self.compared else ""), params


class AsWritten(models.Func):
    """The text of such a column, also of values that Python and ``jsonb`` cannot read."""

    output_field = models.TextField()

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Any]:
        column: Any = self.get_source_expressions()[0]
        return f"{column.written(compiler, connection)}::text", []


class PlainKeyTransform(KeyTransform):
    """A key of the field, ``data__order_id``: selected as written, compared as ``jsonb``."""

    compared = False

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        root: Any = self
        while isinstance(root, KeyTransform):
            root = root.lhs
        # An ORDER BY refers to the column as "1".
        self.compared = _compares(compiler.query) or bool(compiler.query.order_by) or not isinstance(root, PlainCol)
        if self.compared or compiler.query.subquery:
            return sql, params
        return sql.replace(compiler.compile(root)[0], root.written(compiler, compiler.connection), 1), params


@PlainJSONField.register_lookup
class PlainIsNull(IsNull):
    """``data__isnull=`` of the column, also for values that ``jsonb`` cannot hold."""

    def process_lhs(self, compiler: Any, connection: Any, lhs: Any = None) -> tuple[str, Any]:
        here = lhs or self.lhs
        if isinstance(here, PlainCol):
            return here.written(compiler, connection), []
        return super().process_lhs(compiler, connection, lhs)


def _tagged(lookup: Any, compiler: Any, tags: Any) -> tuple[str, list[Any]]:
    """Return the condition, by an index, that a job has all these tags."""
    lhs: Any = lookup.lhs.lhs if isinstance(lookup.lhs, KeyTransform) else lookup.lhs
    number, _ = compiler.compile(Col(lhs.alias, lhs.target.model._meta.pk))
    numbers = "SELECT t.seq FROM leasequeue_job t WHERE leasequeue_tags(t.meta) @> %s::jsonb"
    return f"{number} = ANY (ARRAY({numbers}))", [json.dumps(tags)]  # nosec  # B608: no value


class TagTransform(KeyTransform):
    """The value of one tag: ``tags__customer``."""


@TagTransform.register_lookup
class TagExact(django_json.KeyTransformExact):
    """``tags__customer=``."""

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        if not isinstance(self.rhs, (str, int)) or not isinstance(self.lhs.lhs, Col):
            return super().as_sql(compiler, connection)
        return _tagged(self, compiler, {self.lhs.key_name: self.rhs})


class TagsField(models.JSONField):
    """The tags of a job. Equality of one, and ``contains`` of several, use their index."""

    def get_transform(self, lookup_name: str) -> Any:
        found = super().get_transform(lookup_name)
        return partial(TagTransform, lookup_name) if isinstance(found, KeyTransformFactory) else found


@TagsField.register_lookup
class TagsContain(django_json.DataContains):
    """``tags__contains=``."""

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        if not isinstance(self.rhs, dict) or not isinstance(self.lhs, Col):
            return super().as_postgresql(compiler, connection)
        return _tagged(self, compiler, self.rhs)


class _OrNone(ForwardManyToOneDescriptor):
    """The other row, or ``None``: most jobs have no dead letter, and live ones no result."""

    def get_object(self, instance: Any) -> Any:
        try:
            return super().get_object(instance)
        except self.field.remote_field.model.DoesNotExist:
            return None


class _IsNull(RelatedIsNull):
    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        field = self.lhs.output_field
        if not isinstance(field, SameNumber):
            return super().as_sql(compiler, connection)
        here, params = compiler.compile(self.lhs)
        table, there = field.related_model._meta.db_table, field.target_field.column
        quote = connection.ops.quote_name
        found = f"EXISTS (SELECT FROM {quote(table)} other WHERE other.{quote(there)} = {here})"  # nosec  # B608: names
        return f"NOT {found}" if self.rhs else found, tuple(params)


class SameNumber(models.ForeignObject):
    """The row of another model whose field ``there`` equals the field ``here``; ``None`` without one."""

    forward_related_accessor_class = _OrNone
    empty_strings_allowed = False  # for the admin's EmptyFieldListFilter

    def __init__(
        self, to: Any, here: str = "seq", there: str = "seq", *, related_name: str = "+", **kwargs: Any
    ) -> None:
        # Django's migrations and clones pass these again.
        for name in ("on_delete", "from_fields", "to_fields"):
            kwargs.pop(name, None)
        kwargs |= {"null": True, "blank": True, "editable": False, "serialize": False}
        super().__init__(to, models.DO_NOTHING, [here], [there], related_name=related_name, **kwargs)
        self.here, self.there = here, there

    def deconstruct(self) -> Any:
        name, path, _, kwargs = super().deconstruct()
        back = self.remote_field.related_name or "+"
        return name, path, [], {"to": kwargs["to"], "here": self.here, "there": self.there, "related_name": back}


SameNumber.register_lookup(_IsNull)
