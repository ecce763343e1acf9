"""The options of ``format("leasequeue")``, and the database that they name.

Its address is resolved once on the driver, carried to the tasks, and never printed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import conninfo

from ..exceptions import InvalidOption, StorageError
from ..sql import statement

#: How the database is found.
CONNECTION = frozenset({
    "alias", "service", "dsn", "host", "port", "dbname", "user", "password", "sslmode", "sslrootcert",
    "connect_timeout",
})  # fmt: skip
_ROWS = frozenset({"table", "rowsperpartition", "batches"})
READ = _ROWS | {"numpartitions", "pushdown", "snapshot", "snapshotseconds", "fromid", "toid"}
STREAM = _ROWS | {"consumer", "maxrowspertrigger", "startingoffset", "failondataloss"}
STREAM |= {"acceptsystemchange", "resetafterfailover"}
WRITE = frozenset({"queue", "project", "writeid", "visible", "origin", "replay", "maxpayloadbytes"})
#: Spark adds these by itself.
_SPARK = frozenset({"path", "checkpointlocation", "querymetadata", "__spark_internal"})


class Options:
    """The options of one read or write, names in any case."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str], what: str) -> None:
        self._values = {name.lower(): value for name, value in dict(given).items()}
        known = CONNECTION | set(known)
        if unknown := sorted(set(self._values) - known - _SPARK):
            raise InvalidOption(
                f"The leasequeue {what} knows no option {', '.join(unknown)}. It knows {', '.join(sorted(known))}."
            )

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._values.get(name.lower(), default)

    def number(self, name: str, default: int | None, low: int = 1, high: int = 1_000_000_000) -> int | None:
        """Return an option as an integer within bounds; anything else is an InvalidOption."""
        value = self._values.get(name.lower())
        if value is None:
            return default
        with suppress(ValueError):
            if low <= (number := int(value)) <= high:
                return number
        raise InvalidOption(f"Option {name!r} must be an integer from {low} to {high}; it is {value!r}.")

    def flag(self, name: str, default: bool) -> bool:
        value = str(self._values.get(name.lower(), default)).lower()
        if value not in {"true", "false"}:
            raise InvalidOption(f"Option {name!r} must be true or false; it is {value!r}.")
        return value == "true"

    def choice(self, name: str, default: str, allowed: Iterable[str]) -> str:
        value = self._values.get(name.lower(), default)
        if value not in set(allowed):
            raise InvalidOption(f"Option {name!r} must be one of {', '.join(allowed)}; it is {value!r}.")
        return value

    def connection(self) -> dict[str, str]:
        return {name: value for name, value in self._values.items() if name in CONNECTION}


#: Of every connection: UTC text for times, one format for dates, short plans, and a name that operators recognise.
_SESSION = "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601 -c extra_float_digits=1 -c jit=off"


class Database:
    """A database that tasks can connect to. Its text never shows the password, so it may stand in plans and logs."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._parameters = parameters

    def __repr__(self) -> str:
        shown = {name: self._parameters.get(name, "") for name in ("host", "port", "dbname", "user")}
        return f"Database({', '.join(f'{name}={value}' for name, value in shown.items() if value)})"

    def connect(self, *, read_only: bool = True, autocommit: bool = True) -> psycopg.Connection[Any]:
        options = f"{self._parameters.get('options', '')} {_SESSION}".strip()
        if read_only:
            options += " -c default_transaction_read_only=on"
        parameters = {"application_name": "leasequeue-spark", **self._parameters, "options": options}
        try:
            return psycopg.connect(**parameters, autocommit=autocommit, prepare_threshold=None)
        except psycopg.OperationalError as error:
            raise StorageError(f"No connection to {self!r}: {error}", error) from None


def fetch(connection: psycopg.Connection[Any], name: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
    """Run a statement and return its rows."""
    cursor = psycopg.ClientCursor(connection).execute(statement(name), parameters or None)
    return cursor.fetchall() if cursor.description else []


def resolve(options: dict[str, str]) -> Database:
    """Find the database on the driver.

    In this order: ``alias`` (a Django database; settings must be importable), ``service``, ``dsn`` or single options,
    Django's own alias when ``DJANGO_SETTINGS_MODULE`` is set, libpq's environment (``PGHOST``, ``PGSERVICE`` ...).
    The password comes from where libpq finds it (option ``password``, ``PGPASSWORD``, the password file, the service).
    """
    given = dict(options)
    alias = given.pop("alias", None)
    if alias is not None and given:
        raise InvalidOption(f"Option 'alias' names the whole connection; leave out {', '.join(sorted(given))}.")
    if alias is not None or (not given and os.environ.get("DJANGO_SETTINGS_MODULE")):
        return Database(_of_django(alias))
    dsn = given.pop("dsn", "")
    try:
        parameters = conninfo.conninfo_to_dict(dsn, **given)
    except psycopg.ProgrammingError as error:
        raise InvalidOption(f"Option 'dsn' is no connection string: {error}") from None
    if dsn and "password" in conninfo.conninfo_to_dict(dsn):
        raise InvalidOption(
            "Option 'dsn' must not hold a password: Spark shows options in plans and logs. Use option 'password' (Spark"
            " redacts it), a service, a password file, or PGPASSWORD."
        )
    return _as_libpq_sees_it(Database(parameters))


def resolve_of(options: Mapping[str, str]) -> Database:
    """Find the database that some options of a read or write name."""
    return resolve({name: value for name, value in options.items() if name.lower() in CONNECTION})


def address(alias: str) -> dict[str, str]:
    """Return the source's options for a Django database, for processes of Spark that do not know Django's settings."""
    parameters = _as_libpq_sees_it(Database(_of_django(alias)))._parameters
    password = parameters.pop("password", None)
    dsn = {"dsn": conninfo.make_conninfo(**parameters)}
    return dsn if password is None else {**dsn, "password": password}


def _as_libpq_sees_it(database: Database) -> Database:
    """Resolve environment, service and password file here: the tasks' machines have none of them."""
    with database.connect() as connection:
        info = connection.info
        ours = ("application_name", "options", "service", "passfile")
        seen: dict[str, Any] = {name: value for name, value in info.get_parameters().items() if name not in ours}
        if given := database._parameters.get("options"):  # a search path, for example; without what connect() adds
            seen["options"] = given
        if info.password:
            seen["password"] = info.password
        return Database(seen)


def _of_django(alias: str | None) -> dict[str, Any]:
    try:
        import django
        from django.apps import apps
        from django.db import connections

        from .. import conf
    except ImportError as error:
        raise InvalidOption(f"Option 'alias' needs Django on the driver: {error}") from None
    if not apps.ready:
        django.setup()
    name = alias or conf.settings.DATABASE
    if name not in connections:
        raise InvalidOption(f"There is no database alias {name!r}; there are {', '.join(connections)}.")
    from ..engine.pool import known_to_libpq  # with Django

    parameters = known_to_libpq(connections[name].get_connection_params())
    if role := connections[name].settings_dict["OPTIONS"].get("assume_role"):
        escaped = role.replace("\\", r"\\").replace(" ", r"\ ")
        parameters["options"] = f"{parameters.get('options', '')} -c role={escaped}".strip()
    return parameters
