"""What django-tenants asks for. Without migrations: the host makes the tables by ``run_syncdb``."""

from django_tenants.models import DomainMixin, TenantMixin


class Tenant(TenantMixin):
    """A tenant with a schema of its own."""


class Domain(DomainMixin):
    """The name under which a tenant is asked."""
