"""The tenants of the host with django-tenants."""
