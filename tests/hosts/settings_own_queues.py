"""django-tenants: each tenant has its own queues. The smoke is one of alpha's; beta has a worker beside it."""

import os
import subprocess
import sys
from typing import Any

from django.core.management import call_command
from django.db import connection
from django.db.backends.signals import connection_created

from testproject.settings import DATABASES, INSTALLED_APPS, MIDDLEWARE
from tests.hosts.settings_plain import *  # noqa: F403
from tests.hosts.settings_tenants import APP

TENANT_APPS = [APP if app == "django_leasequeue" else app for app in INSTALLED_APPS]
SHARED_APPS = ["django_tenants", "tests.hosts.tenants"]
TENANT_MODEL, TENANT_DOMAIN_MODEL = "tenants.Tenant", "tenants.Domain"
SILENCED_SYSTEM_CHECKS = ["commands.E001", "leasequeue.E008", "leasequeue.W030"]
LEASEQUEUE = {"ASYNC": "thread"}
WORKER = {"HOST_SCHEMA": "alpha"}
if schema := os.environ.get("HOST_SCHEMA"):  # what the documentation has for a tenant's worker and commands
    DATABASES = {"default": {**DATABASES["default"], "OPTIONS": {"options": f"-c search_path={schema},public"}}}
else:
    DATABASES = {"default": {**DATABASES["default"], "ENGINE": "django_tenants.postgresql_backend"}}
    DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
    INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]
    MIDDLEWARE = ["django_tenants.middleware.main.TenantMainMiddleware", *MIDDLEWARE]


def prepare() -> None:
    """Make two tenants, of which one has the test client's name for its domain, and go on in that one's schema."""
    from tests.hosts.tenants.models import Domain, Tenant

    call_command("migrate_schemas", shared=True, run_syncdb=True, verbosity=0)
    tenant = Tenant(schema_name="alpha")
    tenant.save(verbosity=0)
    Domain.objects.create(domain="testserver", tenant=tenant, is_primary=True)
    Tenant(schema_name="beta").save(verbosity=0)
    # Of the threads of coroutines as well: what a middleware does for a request.
    connection_created.connect(_in_alpha, weak=False)
    connection.set_schema("alpha")  # type: ignore[attr-defined]


def _in_alpha(connection: Any, **_: Any) -> None:
    connection.set_schema("alpha")


def while_a_worker_runs() -> str:
    from django_tenants.utils import schema_context

    from tests.hosts.tasks import in_schema

    results = {}
    for schema in ("alpha", "beta"):
        with schema_context(schema):
            results[schema] = in_schema.enqueue()
    assert results["alpha"].wait(60) == "alpha"
    env = {**os.environ, "HOST_SCHEMA": "beta"}
    subprocess.run([sys.executable, "-m", "django", "runworker", "--burst"], env=env, check=True, capture_output=True)
    with schema_context("beta"):
        assert results["beta"].refresh() or results["beta"].return_value == "beta"
    return "each tenant's worker runs its tasks, and no other's"
