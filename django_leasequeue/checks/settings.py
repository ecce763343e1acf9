"""System checks of the settings and of the host's URLs, each with a stable id.

Checks that query the database are in ``database``: ``manage.py check --database default`` and ``migrate`` run them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import django
from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import storages
from django.core.management import get_commands
from django.db import connections, router
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.module_loading import import_string

from .. import conf
from ..engine import exchange
from ..engine.queues import presets, routing
from ..exceptions import InvalidOption

APP = "leasequeue"
#: ``manage.py check --tag leasequeue`` runs our checks only, as a worker does when it starts.
TAG = "leasequeue"
#: The shortest heartbeat interval that usual pauses of a process or a network do not exceed.
SHORTEST_HEARTBEAT_MS = 1_000
#: The view that answers 404 to every other address, and the end of its route.
NOT_FOUND = "django_leasequeue.http.views.not_found"
REST = "<leasequeue_text:rest>"
STOPS = "Correct it: migrate and runworker do not start before."

Messages = list[checks.CheckMessage]


@checks.register(TAG, checks.Tags.compatibility)
def check_installation(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Messages:
    """Check INSTALLED_APPS, the driver and the database aliases."""
    return list(_installation())


def _installation() -> Iterator[checks.CheckMessage]:
    if not has_psycopg_3():
        yield checks.Error(
            "Django talks to PostgreSQL through psycopg2; the queues need psycopg 3.",
            hint='pip install "psycopg[binary,pool]>=3.2", and uninstall psycopg2: Django then takes psycopg 3.',
            id="leasequeue.E006",
        )
    elif (reason := exchange.misfit()) is not None:
        yield checks.Warning(
            f"Statements go by psycopg's cursors, which takes more CPU: {reason}.",
            hint="All calls work. Install another psycopg 3, or silence this until django-leasequeue takes yours.",
            id="leasequeue.W031",
        )
    backends = getattr(django_settings, "TASKS", None)
    ours = isinstance(backends, dict) and any(
        isinstance(given, dict) and str(given.get("BACKEND", "")).startswith("django_leasequeue.")
        for given in backends.values()
    )
    if ours and django.VERSION < (6, 0) and not apps.is_installed("django_tasks"):
        yield checks.Warning(
            "'django_tasks' is not in INSTALLED_APPS: nothing checks TASKS on Django 5.2.",
            hint="Add 'django_tasks' to INSTALLED_APPS. From Django 6.0 on it is not needed.",
            id="leasequeue.W019",
        )
    owner = get_commands().get("runworker")
    if owner != "django_leasequeue":
        yield checks.Warning(
            f"'manage.py runworker' is the command of {owner!r}, which stands before 'django_leasequeue'.",
            hint="Use 'manage.py leasequeue_worker' (the same), or put 'django_leasequeue' first in INSTALLED_APPS.",
            id="leasequeue.W010",
        )


def has_psycopg_3() -> bool:
    """Return whether Django uses psycopg 3."""
    from django.db.backends.postgresql.psycopg_any import is_psycopg3

    return bool(is_psycopg3)


@checks.register(TAG)
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Messages:
    """Check ``LEASEQUEUE``."""
    if problems := conf.problems():
        return [checks.Error(problem.message, hint=problem.hint, id="leasequeue.E001") for problem in problems]
    basics: Messages = [*_aliases()]
    # The parts that use a database would report its problem again.
    parts = [] if any(isinstance(message, checks.Error) for message in basics) else [*_worker_and_reaper()]
    return [*basics, *parts, *_declared_queues(), *_recurring(), *_context()]


def _aliases() -> Iterator[checks.CheckMessage]:
    try:
        usable = conf.settings.ROUTER is None or callable(import_string(conf.settings.ROUTER))
    except ImportError:
        usable = False
    if not usable:
        yield checks.Error(
            f"LEASEQUEUE['ROUTER'] must be the dotted path of a function; it is {conf.settings.ROUTER!r}.",
            hint="The function takes a project and the name of a queue, and returns an alias.",
            id="leasequeue.E003",
        )
        return
    alias = conf.settings.DATABASE
    if alias not in django_settings.DATABASES:
        yield _no_alias(f"LEASEQUEUE['DATABASE'] is {alias!r}")
        return
    if connections[alias].vendor != "postgresql":
        yield checks.Error(
            f"The database {alias!r} is {connections[alias].display_name}; the queues need PostgreSQL.",
            hint=f"Make DATABASES[{alias!r}] PostgreSQL. Or name a PostgreSQL alias in LEASEQUEUE['DATABASE'], and send"
            " the app 'leasequeue' there by a router.",
            id="leasequeue.E004",
        )
        return
    yield from _router(alias)
    yield from _large()
    yield from _elsewhere()
    yield from _listen_dsn()
    for each in routing.aliases():
        if each in django_settings.DATABASES:
            yield from _pool(each)


def _no_alias(said: str, more: str = "") -> checks.Error:
    """Return the error of a setting that names an unknown alias."""
    hint = f"The aliases are {', '.join(django_settings.DATABASES)}{more}."
    return checks.Error(f"{said}, which is not in DATABASES.", hint=hint, id="leasequeue.E003")


def _router(alias: str) -> Iterator[checks.CheckMessage]:
    """All tables must be in the engine's database: one statement writes a job and its event."""
    if conf.settings.ROUTER or len(routing.aliases()) > 1:
        return
    models = list(apps.get_app_config(APP).get_models())
    targets = {(model, find(model)) for model in models for find in (router.db_for_write, router.db_for_read)}
    elsewhere = sorted(f"{model._meta.object_name} in {target!r}" for model, target in targets if target != alias)
    refused = [model._meta.object_name for model in models if not router.allow_migrate_model(alias, model)]
    if elsewhere or refused:
        what = f"({', '.join(elsewhere[:5])})" if elsewhere else f"(no migration of {', '.join(map(str, refused[:5]))})"
        yield checks.Error(
            f"DATABASE_ROUTERS send tables of the app {APP!r} elsewhere than LEASEQUEUE['DATABASE'], {alias!r} {what}.",
            hint=f"All tables of {APP!r} must be in one database: let the routers return {alias!r} for the app, for"
            " reads too, or name another alias in LEASEQUEUE['DATABASE'].",
            id="leasequeue.E008",
        )


def _elsewhere() -> Iterator[checks.CheckMessage]:
    """Warn of jobs in another database than the host's data: no transaction covers both."""
    data = conf.settings.ENQUEUE_AFTER_COMMIT_OF
    if data is not None and data not in django_settings.DATABASES:
        yield _no_alias(f"LEASEQUEUE['ENQUEUE_AFTER_COMMIT_OF'] is {data!r}", "; None: tasks are enqueued at once")
        return
    elsewhere = sorted(_with_queues() - {data or "default"})
    if not elsewhere:
        return
    waits = (
        f"tasks wait for the commit of {data!r}, and jobs of a Queue do not: they run even if it is rolled back"
        if data
        else "jobs run even if the transaction of your data is rolled back"
    )
    yield checks.Warning(
        f"Jobs are in {', '.join(map(repr, elsewhere))}, your data in {data or 'default'!r}: {waits}.",
        hint="Keep the queues in the database of your data where you can. Else enqueue jobs of a Queue in"
        " transaction.on_commit(), name your data's alias in LEASEQUEUE['ENQUEUE_AFTER_COMMIT_OF'], and silence this"
        " check (docs: how to use a second database).",
        id="leasequeue.W022",
    )


def _with_queues() -> set[str]:
    """Return the aliases that hold queues, with those that only a task backend names."""
    given = getattr(django_settings, "TASKS", None)
    backends = [backend for backend in given.values() if isinstance(backend, dict)] if isinstance(given, dict) else []
    options = [backend.get("OPTIONS") for backend in backends if "leasequeue" in str(backend.get("BACKEND"))]
    named = [option.get("database") for option in options if isinstance(option, dict)]
    return {str(alias) for alias in [*routing.aliases(), *named] if alias}


def _listen_dsn() -> Iterator[checks.CheckMessage]:
    """One connection string serves one database only."""
    given = conf.settings.LISTEN_DSN
    if isinstance(given, dict):
        unknown = sorted(given.keys() - set(django_settings.DATABASES))
        if unknown:
            yield _no_alias(f"LEASEQUEUE['LISTEN_DSN'] names {', '.join(map(repr, unknown))}")
        return
    found = sorted(_with_queues() | {conf.settings.WORKER.database} - {""})
    if given and len(found) > 1:
        entries = ", ".join(f"{alias!r}: 'postgresql://...'" for alias in found)
        yield checks.Error(
            f"LEASEQUEUE['LISTEN_DSN'] is one connection string, and queues are in {len(found)} databases:"
            f" {', '.join(map(repr, found))}.",
            hint=f"Write one for each that is behind a pooler: 'LISTEN_DSN': {{{entries}}}. The others listen over"
            " their own entry in DATABASES.",
            id="leasequeue.E026",
        )


def _large() -> Iterator[checks.CheckMessage]:
    """Large payloads need an existing storage, and limits of small payloads that reach it."""
    large = conf.settings.LARGE
    if large.ABOVE is None:
        return
    if large.STORAGE not in storages.backends:
        yield checks.Error(
            f"LEASEQUEUE['LARGE']['STORAGE'] is {large.STORAGE!r}, which is not in STORAGES.",
            hint=f"The aliases are {', '.join(storages.backends)}.",
            id="leasequeue.E020",
        )
    for name in ("MAX_PAYLOAD_BYTES", "MAX_RESULT_BYTES"):
        limit = getattr(conf.settings, name)
        if limit < large.ABOVE:
            yield checks.Warning(
                f"LEASEQUEUE['LARGE']['ABOVE'] is {large.ABOVE}, more than {name}, {limit}: payloads"
                " between the two are refused, although larger ones are not.",
                hint=f"Set ABOVE to {limit} or less.",
                id="leasequeue.W021",
            )


def _pool(alias: str) -> Iterator[checks.CheckMessage]:
    pool = django_settings.DATABASES[alias].get("OPTIONS", {}).get("pool")
    if not pool:
        return
    given = pool if isinstance(pool, dict) else {}
    size = given.get("max_size") or given.get("min_size", 4)
    concurrency = conf.settings.WORKER.concurrency
    if size < concurrency:
        yield checks.Warning(
            f"A worker runs {concurrency} jobs at once, but the connection pool of {alias!r} holds {size} connections.",
            hint=f"Jobs that use the database wait for each other. Set OPTIONS['pool'] = {{'max_size': {concurrency}}}"
            " or more, or a lower LEASEQUEUE['WORKER']['CONCURRENCY'].",
            id="leasequeue.W009",
        )


def _worker_and_reaper() -> Iterator[checks.CheckMessage]:
    from ..reaper import Reaper
    from ..worker import load_options

    for check in (load_options, Reaper.check_options):
        try:
            check()
        except ImproperlyConfigured as error:
            yield checks.Error(str(error), hint="See the reference of settings.", id="leasequeue.E016")


def _declared_queues() -> Iterator[checks.CheckMessage]:
    for name, given in conf.settings.QUEUES.items():
        options = dict(given)
        try:
            presets.check_name(name)
            options = presets.complete(options.pop("preset", conf.settings.DEFAULT_PRESET), name, **options)
            routing.check_dead_letter("", name, options["dead_letter"])
        except (InvalidOption, ImproperlyConfigured) as error:
            yield checks.Error(
                f"LEASEQUEUE['QUEUES'][{name!r}]: {error}",
                hint=STOPS,
                id="leasequeue.E012",
            )
            continue
        if options["type"] == "queue" and options["lease_ms"] < 3 * SHORTEST_HEARTBEAT_MS:
            yield checks.Warning(
                f"The queue {name!r} has leases of {options['lease_ms']} ms, shorter than three heartbeats of"
                f" {SHORTEST_HEARTBEAT_MS} ms.",
                hint="A worker renews a lease when a third of it has passed. A pause of the process or the network"
                " that is longer loses it, and the job runs twice. Set lease_ms to 3000 or more; 30000 is usual.",
                id="leasequeue.W011",
            )


def _recurring() -> Iterator[checks.CheckMessage]:
    from ..models.recurring import CronsimMissing
    from ..reaper import declarations

    for name, given in (conf.settings.RECURRING or {}).items():
        try:
            found = declarations.check(name, given)
            declarations.find_task(found.task)
        except InvalidOption as error:
            cron = isinstance(error, CronsimMissing)
            yield checks.Error(
                f"LEASEQUEUE['RECURRING'][{name!r}]: {error}",
                hint='pip install "django-leasequeue[cron]"' if cron else STOPS,
                id="leasequeue.E015" if cron else "leasequeue.E014",
            )


def _context() -> Iterator[checks.CheckMessage]:
    """Both functions of the context must exist: else enqueues raise, or attempts fail."""
    context = conf.settings.CONTEXT
    for key, path in (("CAPTURE", context.CAPTURE), ("RESTORE", context.RESTORE)):
        try:
            wrong = "" if path is None or callable(import_string(path)) else "it is not callable"
        except ImportError as error:
            wrong = str(error)
        if key == "RESTORE" and path is None and context.CAPTURE is not None:
            wrong = "CAPTURE is set: tasks carry a context that no worker could restore"
        if wrong:
            yield checks.Error(
                f"LEASEQUEUE['CONTEXT'][{key!r}] is {path!r}: {wrong}.",
                hint="CAPTURE is the dotted path of a function that takes a task and returns a dict or None, RESTORE of"
                " one that takes that dict and returns a context manager (docs: how to carry context).",
                id="leasequeue.E027",
            )


@checks.register(checks.Tags.urls)
def check_addresses(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Messages:
    """Check that none of our URL patterns hides an address of the host."""
    if not getattr(django_settings, "ROOT_URLCONF", None):
        return []
    found: Messages = []
    prefixes: list[str] = []
    for route, view in _routes(get_resolver().url_patterns):
        hiding = next((prefix for prefix in prefixes if route.startswith(prefix)), None)
        if hiding is not None:
            found.append(
                checks.Warning(
                    f"The address {route!r} is never reached: the topics that are mounted at {hiding!r} before it"
                    " answer 404 to every other address there.",
                    hint="In ROOT_URLCONF, put it before path(..., include('django_leasequeue.http.topics.urls')).",
                    id="leasequeue.W024",
                )
            )
        if view == NOT_FOUND and route.endswith(REST):
            prefixes.append(route.removesuffix(REST))
    return found


def _routes(patterns: Sequence[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each route and the dotted path of its view, in Django's order."""
    for pattern in patterns:
        route = prefix + str(pattern.pattern).removeprefix("^")
        if isinstance(pattern, URLResolver):
            yield from _routes(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield route, f"{pattern.callback.__module__}.{getattr(pattern.callback, '__qualname__', '')}"
