"""The ASGI application of the benchmark's HTTP servers; a server ends when the benchmark does."""

import threading

from django.core.asgi import get_asgi_application

from django_leasequeue.http.asgi import beside
from testproject.bench.child import watch

threading.Thread(target=watch, daemon=True).start()
application = beside(get_asgi_application(), "/v0/", "/v1/")
