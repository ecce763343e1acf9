"""Projects that put something around Django's connection, each with one smoke: ``python -m tests.hosts NAME ...``."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Host:
    """A row of the matrix; ``settings_<name>.py`` are its settings, and ``docs/reference/works-with.md`` shows it."""

    #: What the documentation calls it.
    title: str
    #: Packages beside those of ``.venv``.
    packages: tuple[str, ...] = ()
    #: The databases that it finds, a function of ``surroundings.py``.
    surroundings: str = "server"
    #: What a project has to set or to know, in Markdown.
    note: str = ""


HOSTS: dict[str, Host] = {
    "plain": Host("Django's PostgreSQL backend"),
    "pool": Host("Django's connection pool", note='`OPTIONS = {"pool": ...}`. Connections of our own are beside it'),
    "pgbouncer_session": Host(
        "pgbouncer, session mode", surroundings="pgbouncer_session", note="[as without](../how-to/pgbouncer.md)"
    ),
    "pgbouncer_transaction": Host(
        "pgbouncer, transaction mode",
        surroundings="pgbouncer_transaction",
        note="`DISABLE_SERVER_SIDE_CURSORS` and `LISTEN_DSN`: [pgbouncer](../how-to/pgbouncer.md)",
    ),
    "poolers": Host(
        "queues in two databases, each behind a pgbouncer",
        surroundings="poolers",
        note="`LISTEN_DSN` for [each alias](../how-to/pgbouncer.md#several-databases)",
    ),
    "repeatable_read": Host(
        "a role whose transactions are `repeatable read`", note="[settings of roles](grants.md#settings-of-roles)"
    ),
    "grants": Host(
        "a role that owns no tables",
        surroundings="app_role",
        note="[the rights that it needs](grants.md); partitions and vacuums are left to the owner",
    ),
    "naive": Host("`USE_TZ = False`", note="`run_after` and the models' times are naive, as Django's are"),
    "gis": Host("GeoDjango's PostGIS backend", surroundings="postgis"),
    "geventpool": Host("django-db-geventpool", ("django-db-geventpool>=4.0.8", "gevent>=24")),
    "tenants": Host(
        "django-tenants, the app in `SHARED_APPS`",
        ("django-tenants>=3.8",),
        note="`CONTEXT` carries the schema: [tenants](../how-to/tenants.md)",
    ),
    "own_queues": Host(
        "django-tenants, the app in `TENANT_APPS`",
        ("django-tenants>=3.8",),
        note="a worker and settings for each tenant: [tenants](../how-to/tenants.md#the-app-in-tenant_apps)",
    ),
    "prometheus": Host("django-prometheus", ("django-prometheus>=2.4",), note="its backend counts our statements"),
    "opentelemetry": Host(
        "OpenTelemetry's psycopg instrumentation",
        ("opentelemetry-instrumentation-psycopg>=0.60b0", "opentelemetry-sdk"),
        note="with `enable_commenter=True`, too",
    ),
    "ddtrace": Host("ddtrace", ("ddtrace>=3",), note="a span for each statement"),
    "silk": Host(
        "django-silk", ("django-silk>=5.4",), note="it shows querysets; statements by cursors it does not look at"
    ),
    "toolbar": Host("django-debug-toolbar", ("django-debug-toolbar>=6",), note="its SQL panel shows our statements"),
    "schema": Host(
        "a schema that is not public",
        note="[schemas](../how-to/second-database.md#another-schema-or-several-installs-in-one-database)",
    ),
    "two_schemas": Host(
        "two installs in two schemas of one database",
        note="[schemas](../how-to/second-database.md#another-schema-or-several-installs-in-one-database)",
    ),
    "unfold": Host("Unfold", ("django-unfold>=0.91",), note="its admin site"),
    "jazzmin": Host("Jazzmin", ("django-jazzmin>=3.0.5",)),
    "grappelli": Host("Grappelli", ("django-grappelli>=5.0.1",), note="on a desk"),
}
#: What a host's Python runs.
SMOKE = "import sys, django; django.setup(); from tests.hosts.smoke import main; main(sys.argv[1:])"
