"""``DATABASE_URL`` to Django's ``DATABASES`` entry and back."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

ENGINE = "django.db.backends.postgresql"

# libpq's names of what Django has a setting for; everything else goes to OPTIONS.
_SETTINGS = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}  # nosec  # B105: names


class InvalidDatabaseURL(ImproperlyConfigured):
    """The text is not a PostgreSQL URL that names a database."""


def database_from_url(url: str) -> dict[str, Any]:
    """Turn a PostgreSQL URL into an entry of Django's ``DATABASES``, with ``OPTIONS`` where it has further parameters.

    libpq itself reads the URL, so everything that ``psql`` takes is taken here: ``postgres://`` and ``postgresql://``,
    percent-encoding, several hosts, a socket directory as ``?host=/run/postgresql``, options such as
    ``?sslmode=require``, and the ``key=value`` form. The error never repeats it: it may hold a password.
    """
    text = url.strip()
    scheme, separator, _ = text.partition("://")
    if not text:
        raise InvalidDatabaseURL(
            "DATABASE_URL is empty: unset it, or set it to postgresql://user:password@host:5432/name."
        )
    if separator and scheme not in {"postgres", "postgresql"}:
        raise InvalidDatabaseURL(
            f"DATABASE_URL starts with {scheme!r}, but the queue needs PostgreSQL: "
            "postgresql://user:password@host:5432/name."
        )
    try:
        parameters = conninfo_to_dict(text)
    except ProgrammingError:
        # No chaining: libpq's message quotes the part it stumbled over.
        raise InvalidDatabaseURL(
            "DATABASE_URL cannot be read. Its form is postgresql://user:password@host:5432/name; in a user name or a "
            "password write special characters percent-encoded (@ is %40, / is %2F, : is %3A)."
        ) from None
    if not parameters.get("dbname"):
        raise InvalidDatabaseURL("DATABASE_URL names no database: end it with /name.")
    database: dict[str, Any] = {"ENGINE": ENGINE}
    for parameter, setting in _SETTINGS.items():
        database[setting] = str(parameters.pop(parameter, None) or "")
    if parameters:
        database["OPTIONS"] = dict(parameters)
    return database


def url_from_database(database: Mapping[str, Any]) -> str:
    """Turn an entry of Django's ``DATABASES``, with its libpq ``OPTIONS``, into a URL."""
    login = quote(str(database.get("USER") or ""), safe="")
    if password := database.get("PASSWORD"):
        login += ":" + quote(str(password), safe="")
    parameters = {"host": database.get("HOST"), "port": database.get("PORT")}
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    options = {
        name: value
        for name, value in (database.get("OPTIONS") or {}).items()
        if isinstance(value, str | int) and not isinstance(value, bool) and name in known
    }
    query = urlencode({name: value for name, value in {**parameters, **options}.items() if value}, quote_via=quote)
    name = quote(str(database["NAME"]), safe="")
    return f"postgresql://{login}{'@' if login else ''}/{name}{'?' if query else ''}{query}"
