"""Operations on the databases of queues: in the caller's transaction, or on an async connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from django.db import Error as DjangoError

from .. import engine
from ..engine.operation import Steps
from ..engine.outage import away
from ..engine.runner import drive
from ..exceptions import StorageError

T = TypeVar("T")


@contextmanager
def storage_errors() -> Iterator[None]:
    """Raise ``StorageError`` for what the database's connection or server does not let happen; the cause is kept."""
    try:
        yield
    except (DjangoError, psycopg.Error) as error:
        if not away(error):
            raise
        raise StorageError(f"The database could not do it: {error}", error) from error


def run(operation: engine.Operation[T], using: str) -> T:
    """Run an operation on Django's connection, in the caller's transaction if there is one.

    Raises:
        StorageError: the database could not be reached or broke off.
    """
    with storage_errors():
        return engine.run(operation, using)


async def arun(operation: engine.Operation[T], using: str) -> T:
    """See ``run``. It runs on an async connection of its own, not in a transaction of the caller."""
    with storage_errors():
        return await engine.arun(operation, using)


class OnDatabase(ABC):
    """Base of classes each of whose methods is one operation."""

    @property
    @abstractmethod
    def using(self) -> str:
        """Alias of the database."""

    def _run(self, steps: Steps[T], /) -> T:
        with storage_errors():
            return drive(engine.DjangoExecutor(self.using), steps)

    async def _arun(self, steps: Steps[T], /) -> T:
        return await arun(engine.Operation(lambda: steps), self.using)
