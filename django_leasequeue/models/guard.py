"""Triggers: the one that refuses a change, and the one that notes jobs whose end may set others free."""

from __future__ import annotations

from typing import Any

import pgtrigger
from pgtrigger import compiler


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
