"""django-tenants: the queues are shared by the tenants, and a page is one of a tenant's."""

from contextlib import AbstractContextManager
from typing import Any

from django.core.management import call_command
from django.db import connection

from testproject.settings import DATABASES, INSTALLED_APPS, MIDDLEWARE
from tests.hosts.settings_plain import *  # noqa: F403

DATABASES = {"default": {**DATABASES["default"], "ENGINE": "django_tenants.postgresql_backend"}}
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
#: By its class: the admin's index of django-tenants shows no app whose label is not its name.
APP = "django_leasequeue.apps.LeaseQueueConfig"
TENANT_APPS = ["testproject.demo"]
SHARED_APPS = ["django_tenants", "tests.hosts.tenants", APP, *INSTALLED_APPS]
SHARED_APPS = [app for app in SHARED_APPS if app not in {"django_leasequeue", *TENANT_APPS}]
INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]
MIDDLEWARE = ["django_tenants.middleware.main.TenantMainMiddleware", *MIDDLEWARE]
# The `migrate` of django-tenants and django-pgtrigger's `makemigrations` have two classes for one thing.
SILENCED_SYSTEM_CHECKS = ["commands.E001"]
TENANT_MODEL = "tenants.Tenant"
TENANT_DOMAIN_MODEL = "tenants.Domain"
_HERE = "tests.hosts.settings_tenants"
LEASEQUEUE = {"CONTEXT": {"CAPTURE": f"{_HERE}.capture", "RESTORE": f"{_HERE}.restore"}}


def capture(task: Any) -> dict[str, str]:
    return {"schema": connection.schema_name}  # type: ignore[attr-defined]


def restore(context: dict[str, str]) -> AbstractContextManager[None]:
    from django_tenants.utils import schema_context

    found: AbstractContextManager[None] = schema_context(context["schema"])
    return found


def prepare() -> None:
    """Make the tables and two tenants, of which one has the test client's name for its domain."""
    from tests.hosts.tenants.models import Domain, Tenant

    call_command("migrate_schemas", shared=True, run_syncdb=True, verbosity=0)
    tenant = Tenant(schema_name="alpha")
    tenant.save(verbosity=0)
    Domain.objects.create(domain="testserver", tenant=tenant, is_primary=True)
    Tenant(schema_name="beta").save(verbosity=0)


def while_a_worker_runs() -> str:
    from django_tenants.utils import schema_context

    from tests.hosts.tasks import in_schema

    results = {}
    for schema in ("alpha", "beta"):
        with schema_context(schema):
            results[schema] = in_schema.enqueue()
    assert {schema: result.wait(60) for schema, result in results.items()} == {"alpha": "alpha", "beta": "beta"}
    return "tasks run in the tenant that enqueues them"
