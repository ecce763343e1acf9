"""The options of ``format("leasequeue")``: one place that knows them, checks them and says what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..exceptions import InvalidOption

#: How the database is found (see :mod:`django_leasequeue.spark.database`).
CONNECTION = frozenset(
    {
        "alias", "service", "dsn", "host", "port", "dbname", "user", "password", "sslmode", "sslrootcert",
        "connect_timeout",
    }
)  # fmt: skip
READ = frozenset(
    {
        "table", "numpartitions", "rowsperpartition", "pushdown", "snapshot", "snapshotseconds", "fromid", "toid",
        "batches",
    }
)  # fmt: skip
STREAM = frozenset(
    {
        "table", "consumer", "maxrowspertrigger", "rowsperpartition", "startingoffset", "failondataloss",
        "acceptsystemchange", "resetafterfailover", "batches",
    }
)  # fmt: skip
WRITE = frozenset({"queue", "project", "writeid", "visible", "origin", "replay", "maxpayloadbytes"})
#: Spark adds these by itself.
_SPARK = frozenset({"path", "checkpointlocation", "querymetadata", "__spark_internal"})


class Options:
    """The options of one read or write, names in any case."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str], what: str) -> None:
        self._values = {name.lower(): value for name, value in dict(given).items()}
        known = CONNECTION | set(known)
        unknown = sorted(set(self._values) - known - _SPARK)
        if unknown:
            raise InvalidOption(
                f"The leasequeue {what} knows no option {', '.join(unknown)}. It knows {', '.join(sorted(known))}."
            )

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return an option's text."""
        return self._values.get(name.lower(), default)

    def number(self, name: str, default: int | None, low: int = 1, high: int = 1_000_000_000) -> int | None:
        """Return an option as an integer within bounds.

        Raises:
            InvalidOption: it is none, or outside.
        """
        value = self._values.get(name.lower())
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise InvalidOption(f"Option {name!r} must be an integer from {low} to {high}; it is {value!r}.")
        return number

    def flag(self, name: str, default: bool) -> bool:
        """Return an option as a truth value."""
        value = str(self._values.get(name.lower(), default)).lower()
        if value not in {"true", "false"}:
            raise InvalidOption(f"Option {name!r} must be true or false; it is {value!r}.")
        return value == "true"

    def choice(self, name: str, default: str, allowed: Iterable[str]) -> str:
        """Return an option that is one of a few words."""
        value = self._values.get(name.lower(), default)
        if value not in set(allowed):
            raise InvalidOption(f"Option {name!r} must be one of {', '.join(allowed)}; it is {value!r}.")
        return value

    def connection(self) -> dict[str, str]:
        """Return those options that say where the database is."""
        return {name: value for name, value in self._values.items() if name in CONNECTION}
