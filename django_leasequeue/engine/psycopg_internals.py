"""Undocumented names of psycopg that the exchange uses, and whether the installed psycopg has them as it needs them.

Any release may rename them. Where one does not fit, statements go by cursors, which are documented: nothing breaks.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator
from functools import lru_cache
from inspect import signature
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap

__all__ = ["Transformer", "error_from_result", "execute", "fetch_many", "fits", "misfit", "send_queued"]

logger = logging.getLogger(__name__)

#: The newest psycopg that the tests have run with. It is raised by hand, when ``.ci/run`` has passed with a newer one.
NEWEST = (3, 3)
_MISSING = ""

try:
    from psycopg.adapt import Transformer
    from psycopg.errors import error_from_result
    from psycopg.generators import execute, fetch_many
    from psycopg.generators import send as send_queued
except ImportError as error:
    Transformer = error_from_result = execute = fetch_many = send_queued = None  # type: ignore[assignment]
    _MISSING = str(error)

#: What the exchange calls of libpq's wrapper.
_OF_PGCONN = (
    "send_prepare",
    "send_query_prepared",
    "send_query_params",
    "enter_pipeline_mode",
    "exit_pipeline_mode",
    "pipeline_sync",
    "parameter_status",
    "transaction_status",
    "pipeline_status",
)


class _Context:
    """An adaptation context without a connection."""

    connection = None

    def __init__(self, adapters: AdaptersMap) -> None:
        self.adapters = adapters


def misfit(version: str = psycopg.__version__) -> str | None:
    """Return why the exchange cannot use the installed psycopg; ``None`` where it can.

    Names, and arguments of calls, are tried on a connection that was never made: no server is asked.
    """
    if tuple(map(int, re.findall(r"\d+", version)[:2])) > NEWEST:
        return f"psycopg {version} is newer than {'.'.join(map(str, NEWEST))}, the newest that was tested"
    if _MISSING:
        return f"psycopg {version}: {_MISSING}"
    try:
        _rehearse()
    except Exception as error:  # noqa: BLE001  (whatever another release raises)
        return f"psycopg {version}: {type(error).__name__}: {error}"
    return None


def _rehearse() -> None:
    pgconn = pq.PGconn.connect_start(b"=")  # no parameters of a connection: it is bad from the start
    for name in _OF_PGCONN:
        getattr(pq.PGconn, name)
    waiting: Callable[..., Generator[Any, Any, Any]]
    for waiting in (execute, fetch_many, send_queued):
        waiting(pgconn).close()
    result = pgconn.make_empty_result(pq.ExecStatus.TUPLES_OK)
    reader = Transformer(_Context(psycopg.adapters))
    reader.set_pgresult(result)
    if reader.load_rows(0, result.ntuples, tuple) != []:
        raise TypeError("Transformer.load_rows() returns no list of rows")
    error = error_from_result(pgconn.make_empty_result(pq.ExecStatus.FATAL_ERROR))
    if not isinstance(error, psycopg.Error):
        raise TypeError("error_from_result() returns no error")
    for kind in (psycopg.Connection, psycopg.AsyncConnection):
        signature(kind.wait).bind(None, None)
        if not hasattr(kind(pgconn), "lock"):
            raise AttributeError(f"{kind.__name__} has no lock")


@lru_cache(maxsize=1)
def fits() -> bool:
    """Return whether the exchange can use the installed psycopg; the first call in a process logs it if not."""
    found = misfit()
    if found is not None:
        logger.warning("Statements go by psycopg's cursors, which takes more CPU: %s.", found)
    return found is None
