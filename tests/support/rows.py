"""Rows that are written past the engine: by tests that set a table up, or break it on purpose."""

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
import pytest
from django.db import IntegrityError, models, transaction

M = TypeVar("M", bound=models.Model)


class Rows(models.QuerySet[M]):
    """A queryset that writes what the models refuse to."""

    def create(self, **values: Any) -> M:
        return self.bulk_create([self.model(**values)])[0]


def rows(model: type[M]) -> Rows[M]:
    return Rows(model)


def refused(constraint: str, act: Callable[[], Any]) -> str:
    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        act()
    assert isinstance(caught.value.__cause__, psycopg.Error)
    assert caught.value.__cause__.diag.constraint_name == constraint
    return str(caught.value)
