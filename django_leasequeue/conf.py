"""The settings: ``LEASEQUEUE = {...}`` in the host's settings module, with a default for each key."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed


@dataclass(frozen=True, slots=True)
class Settings:
    """Every key of ``LEASEQUEUE`` and its default."""

    #: Alias of the database that holds the queues.
    DATABASE: str = "default"
    #: Optional dotted path of ``route(project, queue) -> alias`` for queues spread over several databases.
    ROUTER: str | None = None
    #: Queues to make at migrate: {name: {"preset": ..., option: value}}.
    QUEUES: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Preset of a queue of which nothing is said.
    DEFAULT_PRESET: str = "django"
    #: Whether the first job of an unknown queue makes the queue.
    AUTO_CREATE: bool = True
    #: Async calls: "native" (own async connections), "thread" (Django's connection), "auto" (thread in tests).
    ASYNC: str = "auto"
    ASYNC_POOL_SIZE: int = 10
    #: Seconds to wait for an async connection.
    ASYNC_POOL_TIMEOUT: float = 10.0
    #: Seconds that PostgreSQL gets for a statement of a worker, a heartbeat, a listener, an async call or an HTTP
    #: request, then its connection is made anew; 0: any number.
    STATEMENT_TIMEOUT: float = 30.0
    #: Connection string for LISTEN when the alias is behind a pooler in transaction mode; "" = poll only.
    LISTEN_DSN: str | None = None
    #: Serializers beside "json", "bytes" and "msgpack": {name: dotted path of a module or object with dumps and loads}.
    SERIALIZERS: dict[str, Any] = field(default_factory=dict)
    #: Bytes of one payload (data, meta and body together) and of one result.
    MAX_PAYLOAD_BYTES: int = 1_048_576
    MAX_RESULT_BYTES: int = 16_777_216
    #: Jobs of one enqueue call.
    MAX_ENQUEUE: int = 10_000
    #: Rows of one page of a listing.
    MAX_PAGE: int = 1_000
    #: Counts are exact up to here; beyond it they come from samples.
    COUNT_CAP: int = 10_000
    #: Rows of one partition of the lease log; a row is of up to a thousand jobs.
    EVENT_PARTITION_ROWS: int = 500_000
    #: Partitions made ahead.
    EVENT_PARTITIONS_AHEAD: int = 3
    #: Days that events are kept; 0 = for ever.
    EVENT_RETENTION_DAYS: float = 7
    #: Days that samples of queue figures are kept.
    STAT_RETENTION_DAYS: float = 7
    #: Days that the rows of workers are kept that are not seen any more.
    WORKER_RETENTION_DAYS: float = 1 / 24
    #: The reaper: {"INTERVALS": {duty: seconds, or None to leave it out}, "RETRY": seconds between attempts to lead}.
    REAPER: dict[str, Any] = field(default_factory=dict)
    #: Recurring tasks: {name: {"task": ..., "schedule": "*/5 * * * *", ...}}.
    RECURRING: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Options of ``runworker``; its command line wins.
    WORKER: dict[str, Any] = field(default_factory=dict)
    #: The lake: PATH (where it is), CONSUMER (its name, "lake"), CONSUMER_LIMIT_DAYS (30: how long retention waits for
    #: a consumer that is not seen), ARCHIVE (retention waits until events are archived), MASTER, REMOTE, MEMORY, CONF
    #: (Spark).
    LAKE: dict[str, Any] = field(default_factory=dict)
    #: Options of the HTTP doors.
    API: dict[str, Any] = field(default_factory=dict)
    #: The admin's pages: {"REDACT": dotted path of redact(value, *, kind, queue, task), what shows payloads}.
    ADMIN: dict[str, Any] = field(default_factory=dict)


class LazySettings:
    """Reads ``LEASEQUEUE`` on first use, and again when a test changes it."""

    _loaded: Settings | None = None

    def __getattr__(self, name: str) -> Any:
        if self._loaded is None:
            self._loaded = load()
        return getattr(self._loaded, name)

    def forget(self) -> None:
        """Read the settings anew on the next use."""
        self._loaded = None


def unknown() -> list[str]:
    """Return the keys of ``LEASEQUEUE`` that nothing knows (a system check tells them)."""
    known = {item.name for item in fields(Settings)}
    return sorted(set(getattr(django_settings, "LEASEQUEUE", {})) - known)


def load() -> Settings:
    """Return the host's settings over the defaults.

    Raises:
        ImproperlyConfigured: ``LEASEQUEUE`` is not a dict.
    """
    given = getattr(django_settings, "LEASEQUEUE", {})
    if not isinstance(given, dict):
        raise ImproperlyConfigured('LEASEQUEUE must be a dict, for example LEASEQUEUE = {"DATABASE": "default"}.')
    known = {item.name for item in fields(Settings)}
    return Settings(**{key: value for key, value in given.items() if key in known})


settings = LazySettings()


def _changed(*, setting: str, **_: Any) -> None:
    if setting == "LEASEQUEUE":
        settings.forget()


setting_changed.connect(_changed)
