"""The doors of the test project without the rest of it, for one host."""

import django
from django.conf import settings

django.setup()
settings.ALLOWED_HOSTS = ["jobs.example.com"]

from django_leasequeue.http.asgi import beside  # noqa: E402  (after Django is set up)

application = beside(None, "/v0/", "/v1/")
