"""Every key of ``LEASEQUEUE``: its type, its range and its default. ``docs/reference/settings.md`` is their page."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that a setting may have, both ends included."""

    low: float
    high: float = math.inf

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high and value != math.inf

    def __str__(self) -> str:
        return f"{self.low:,} or more" if math.isinf(self.high) else f"{self.low:,} to {self.high:,}"


Count = Annotated[int, Range(1)]
Seconds = Annotated[float, Range(0.01, 86_400)]
SecondsOrZero = Annotated[float, Range(0, 86_400)]
Days = Annotated[float, Range(0)]


@dataclass(frozen=True, slots=True)
class ZaqarLimits:
    """``LEASEQUEUE["API"]["ZAQAR"]``: limits of ``/v1/queues``. Sizes in characters, times in seconds."""

    MAX_QUEUES_PER_PAGE: Count = 20
    MAX_MESSAGES_PER_PAGE: Count = 20
    MAX_MESSAGES_PER_CLAIM: Count = 20
    DEFAULT_PAGE: Count = 10
    #: Bytes.
    MAX_QUEUE_NAME_BYTES: Count = 64
    MAX_METADATA_SIZE: Count = 65_536
    MAX_MESSAGES_SIZE: Count = 262_144
    MIN_MESSAGE_TTL: Count = 60
    MAX_MESSAGE_TTL: Count = 1_209_600
    MIN_CLAIM_TTL: Count = 60
    MAX_CLAIM_TTL: Count = 43_200
    MIN_CLAIM_GRACE: Count = 60
    MAX_CLAIM_GRACE: Count = 43_200
    #: Seconds that proxies and clients may keep the home document.
    HOME_MAX_AGE: Count = 86_400


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """``LEASEQUEUE["API"]``: the HTTP APIs."""

    #: Who may call: "keys" (a key, or the host's authentication), "open" (every client), "auto" (open with DEBUG).
    ACCESS: Literal["auto", "keys", "open"] = "auto"
    #: The host's own DRF authentication classes, by dotted path, asked after our keys.
    AUTHENTICATION_CLASSES: tuple[str, ...] = ()
    #: Dotted path of ``grants(request) -> Access | None`` for requests that the host authenticated; None: our default.
    GRANTS: str | None = None
    #: Seconds for which a key is cached: a revoked one may still work so long.
    KEY_CACHE_SECONDS: SecondsOrZero = 2.0
    #: Unknown keys that one client address may try in a minute, counted by each server process; None: any.
    UNKNOWN_KEYS_PER_MINUTE: Annotated[int | None, Range(1)] = 300
    #: The number of trusted proxies, so of trusted last entries of X-Forwarded-For. 0: the header is not read.
    PROXIES: Annotated[int, Range(0)] = 0
    #: Requests a second of a key without its own rate; None: not limited.
    RATE_PER_SECOND: Annotated[int | None, Range(1)] = None
    #: The Django cache that counts requests. Server processes count together only if they share it.
    THROTTLE_CACHE: str = "default"
    #: Bytes of a request's body.
    MAX_BODY_BYTES: Count = 67_108_864
    #: How deep JSON may be nested.
    MAX_DEPTH: Count = 100
    #: Seconds that the counters in answers about long queues may be old; 0: count for every answer.
    COUNT_SECONDS: SecondsOrZero = 1.0
    #: Streams (work, watch) of one server process. A key gets a new one while it has fewer than are free.
    MAX_STREAMS: Annotated[int, Range(0)] = 2_000
    #: Bytes that may wait for the clients of all streams of one server process.
    MAX_STREAM_BYTES: Annotated[int, Range(1_048_576)] = 8_388_608
    #: Seconds after which a stream is cut off whose client takes nothing.
    SLOW_STREAM_SECONDS: Annotated[float, Range(1, 86_400)] = 30.0
    #: Topics of one watch.
    MAX_WATCHED: Count = 100
    #: Seconds of silence on a stream before a heartbeat.
    HEARTBEAT_SECONDS: Seconds = 15.0
    #: Seconds between checks that the key of an open stream still has its rights.
    RECHECK_SECONDS: Annotated[float, Range(0.1, 86_400)] = 10.0
    #: Seconds for which the URL of a watch is valid.
    WATCH_SECONDS: Count = 86_400
    ZAQAR: ZaqarLimits = ZaqarLimits()


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """``LEASEQUEUE["CONTEXT"]``: what tasks carry from enqueue to run: a tenant, a language, a request id."""

    #: Dotted path of ``capture(task) -> dict | None``, called at the enqueue.
    CAPTURE: str | None = None
    #: Dotted path of ``restore(context)``, which returns a context manager for each run.
    RESTORE: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """``LEASEQUEUE["WORKER"]``: options of a worker. Times in seconds unless the name says ms."""

    #: Names of queues and patterns ("mail*") in order of preference, and exclusions ("-mail.bulk"); none or "*": all
    #: queues of the project with tasks.
    queues: tuple[str, ...] = ()
    #: By name or pattern of a queue, how many of its jobs run at once in one process.
    limits: dict[str, Annotated[int, Range(1, 100_000)]] = field(default_factory=dict)
    project: str = ""
    #: Alias of the database; "" for the one that holds the queues.
    database: str = ""
    #: Threads for sync functions.
    concurrency: Annotated[int, Range(1, 1_000)] = 8
    #: Coroutines at once; 0 for as many as threads.
    async_concurrency: Annotated[int, Range(0, 100_000)] = 0
    #: Processes, each with its own threads and event loop.
    processes: Annotated[int, Range(1, 256)] = 1
    #: Jobs claimed ahead at most, while jobs are short; 0: only jobs that can start at once.
    prefetch: Annotated[int, Range(0, 10_000)] = 2_000
    #: Results of one statement at most (the engine takes a thousand); 1: each by itself.
    ack_batch: Annotated[int, Range(1, 1_000)] = 500
    #: How long a result waits for others while the worker is busy.
    ack_ms: Annotated[float, Range(0, 1_000)] = 5.0
    #: Stop when no job is ready.
    burst: bool = False
    #: Stop after so many jobs; 0 for no end.
    max_jobs: Annotated[int, Range(0)] = 0
    #: Seconds between polls without a notification, as a backstop.
    poll: Annotated[float, Range(0.01, 3_600)] = 5.0
    #: The soft timeout of jobs whose task and call name none, in all queues and in single ones; 0: none.
    timeout: SecondsOrZero = 0.0
    timeouts: dict[str, SecondsOrZero] = field(default_factory=dict)
    #: How long a job may run after its soft timeout before its process is replaced; 0: any time.
    timeout_grace: SecondsOrZero = 10.0
    #: The delay of a job with an unknown task until the next try; and the time after its first claim during which such
    #: deliveries do not count, before it fails.
    unknown_task_delay: Seconds = 10.0
    unknown_task_grace: SecondsOrZero = 600.0
    #: How long a stop waits for running jobs.
    drain_timeout: SecondsOrZero = 25.0
    #: The worker's name; "" for host, process id and a random part.
    node: str = ""
    #: Whether this worker also does the reaper's duties, if no other leads.
    reaper: bool = True
    #: Dotted path of the ``Handler`` that runs jobs.
    handler: str = "django_leasequeue.tasks.handler.TaskHandler"
    #: Address of the health page; 0 for none.
    health_host: str = "127.0.0.1"
    health_port: Annotated[int, Range(0, 65_535)] = 0
    #: A file to write every few seconds while the worker is healthy; "" for none.
    health_file: str = ""
    json_logs: bool = False

    @property
    def coroutines(self) -> int:
        return self.async_concurrency or self.concurrency

    @property
    def all_queues(self) -> bool:
        """True where the worker takes all queues of its project."""
        return not self.queues or self.queues == ("*",)


@dataclass(frozen=True, slots=True)
class ReaperOptions:
    """``LEASEQUEUE["REAPER"]``: intervals of the reaper."""

    #: Seconds between two runs, by duty; ``None``: never.
    INTERVALS: dict[str, Annotated[float | None, Range(0.01, 86_400)]] = field(default_factory=dict)
    #: Seconds between a candidate's checks of the leader (a resignation notifies it at once).
    RETRY: Annotated[float, Range(0.01, 4)] = 3.0


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """``LEASEQUEUE["LAKE"]``: the lake of events."""

    #: A directory, or a URL such as ``s3a://``.
    PATH: str | None = None
    #: Format of tables; None: Delta if the extra ``delta`` is installed, else Parquet.
    FORMAT: Literal["parquet", "delta"] | None = None
    #: The name under which retention knows it.
    CONSUMER: str = "lake"
    #: Days that retention waits for an absent consumer; 0: for ever.
    CONSUMER_LIMIT_DAYS: Days = 30.0
    #: Whether retention waits until events are archived.
    ARCHIVE: bool = False
    #: Spark's master, or a Spark Connect server, and the heap of a local Spark.
    MASTER: str | None = None
    REMOTE: str | None = None
    MEMORY: str | None = None
    #: The tag by whose values (tenants, customers) the report sums up; None: by none.
    TENANT_TAG: str | None = None
    #: The site whose admin the report links to, for example ``https://ops.example.com``.
    SITE: str | None = None
    #: Further options of the Spark session.
    CONF: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """``LEASEQUEUE["ADMIN"]``: the admin's pages."""

    #: ``redact(value, *, kind, queue, task)``, or its dotted path, for all shown payloads. None: ours.
    REDACT: str | Callable[..., Any] | None = None
    #: Address of a line of code, with {path} (below BASE_DIR) and {line}, for the page of a task. None: no link.
    SOURCE: str | None = None


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """``LEASEQUEUE["METRICS"]``: figures for monitoring."""

    #: Queues with their own figures, the oldest first; the others are summed up.
    MAX_QUEUES: Annotated[int, Range(1, 1_000)] = 100
    #: Seconds for which figures are cached: less than the time between two scrapes.
    CACHE_SECONDS: SecondsOrZero = 5.0
    #: Whether enqueues and runs are traced and measured with OpenTelemetry.
    OPENTELEMETRY: bool = False


@dataclass(frozen=True, slots=True)
class LargeOptions:
    """``LEASEQUEUE["LARGE"]``: large payloads, bodies and results in a storage of Django's ``STORAGES``."""

    #: Bytes above which the data or the body of a job, or a result, goes there; None: everything stays in the database.
    ABOVE: Annotated[int | None, Range(1_024, 1_073_741_824)] = None
    #: Alias in STORAGES.
    STORAGE: str = "default"
    #: Bytes of one such part.
    MAX_BYTES: Annotated[int, Range(1_024, 1_073_741_824)] = 67_108_864


@dataclass(frozen=True, slots=True)
class Settings:
    """``LEASEQUEUE``."""

    #: Alias of the database that holds the queues.
    DATABASE: str = "default"
    #: Optional dotted path of ``route(project, queue) -> alias`` for queues spread over several databases.
    ROUTER: str | None = None
    #: Aliases that hold queues where these are spread over several; with ``ROUTER`` every PostgreSQL one by default.
    DATABASES: tuple[str, ...] = ()
    #: Alias of the database of the host's own data. Tasks for queues on another alias are enqueued when its open
    #: transaction commits; ``None``: at once.
    ENQUEUE_AFTER_COMMIT_OF: str | None = "default"
    #: Queues to make at migrate: {name: {"preset": ..., option: value}}.
    QUEUES: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Preset of undeclared queues.
    DEFAULT_PRESET: Literal["topics", "zaqar", "codeq", "jqueue", "jobqueue", "django"] = "django"
    #: Whether the first job of an unknown queue makes the queue.
    AUTO_CREATE: bool = True
    #: Async calls: "native" (own async connections), "thread" (Django's connection), "auto" (native, unless the test
    #: tools of this package are in use: see ``process.Switches``).
    ASYNC: Literal["auto", "native", "thread"] = "auto"
    #: Async connections of one event loop and alias at most.
    ASYNC_POOL_SIZE: Count = 10
    #: Seconds to wait for an async connection.
    ASYNC_POOL_TIMEOUT: Seconds = 10.0
    #: Seconds that PostgreSQL gets for a statement of a worker, a heartbeat, a listener, an async call or an HTTP
    #: request, then its connection is made anew; 0: any number.
    STATEMENT_TIMEOUT: SecondsOrZero = 30.0
    #: Connection string for LISTEN when the alias is behind a pooler in transaction mode; "" = poll only. With queues
    #: in several databases a dict {alias: connection string}.
    LISTEN_DSN: str | dict[str, str] | None = None
    #: Serializers beside "json", "bytes" and "msgpack": {name: dotted path of a module or object with dumps and loads,
    #: or a pair of paths}.
    SERIALIZERS: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
    #: Types that arguments of tasks may have beside JSON's, stored as {"$uuid": "..."}; the same wherever tasks are
    #: enqueued and run.
    TASK_CODECS: tuple[Literal["uuid", "datetime", "date", "decimal"], ...] = ()
    #: Packages and modules that workers import tasks from; (): the installed apps.
    TASK_MODULES: tuple[str, ...] = ()
    CONTEXT: ContextOptions = ContextOptions()
    #: Bytes of one payload (data, meta and body together) and of one result.
    MAX_PAYLOAD_BYTES: Count = 1_048_576
    MAX_RESULT_BYTES: Count = 16_777_216
    LARGE: LargeOptions = LargeOptions()
    #: Jobs of one enqueue call.
    MAX_ENQUEUE: Count = 10_000
    #: Rows of one page of a listing.
    MAX_PAGE: Count = 1_000
    #: Counts are exact up to this number; above it they come from samples.
    COUNT_CAP: Annotated[int, Range(0)] = 100_000
    #: Rows of one partition of the lease log; a row is of up to a thousand jobs.
    EVENT_PARTITION_ROWS: Count = 500_000
    #: Partitions made ahead.
    EVENT_PARTITIONS_AHEAD: Annotated[int, Range(1, 100)] = 3
    #: Days that events are kept; 0 = for ever.
    EVENT_RETENTION_DAYS: Days = 7.0
    #: Days that samples of queue figures are kept.
    STAT_RETENTION_DAYS: Days = 7.0
    #: Days that the rows of dead workers are kept.
    WORKER_RETENTION_DAYS: Days = 1 / 24
    #: Recurring tasks: {name: {"task": ..., "schedule": "*/5 * * * *", ...}}; None: migrate leaves those of this
    #: service as they are.
    RECURRING: dict[str, dict[str, Any]] | None = None
    #: The name under which this project declares recurring tasks; None: the package of its settings module, behind
    #: the project of WORKER if there is one.
    SERVICE: str | None = None
    #: Whether ``manage.py runserver`` runs a worker, too: for development.
    RUNSERVER_WORKER: bool = False
    REAPER: ReaperOptions = ReaperOptions()
    WORKER: WorkerOptions = WorkerOptions()
    LAKE: LakeOptions = LakeOptions()
    API: ApiOptions = ApiOptions()
    ADMIN: AdminOptions = AdminOptions()
    METRICS: MetricsOptions = MetricsOptions()
