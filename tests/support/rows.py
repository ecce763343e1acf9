"""Rows that are written past the engine: by tests that set a table up, or break it on purpose."""

from typing import Any, TypeVar

from django.db import models

M = TypeVar("M", bound=models.Model)


class Rows(models.QuerySet[M]):
    """A queryset that writes what the models refuse to."""

    def create(self, **values: Any) -> M:
        return self.bulk_create([self.model(**values)])[0]


def rows(model: type[M]) -> Rows[M]:
    return Rows(model)
