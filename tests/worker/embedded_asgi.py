"""An ``asgi.py`` whose processes run jobs, too, and hooks with which gunicorn's do beside a WSGI application."""

from typing import Any

from django.core.asgi import get_asgi_application

from django_leasequeue import EmbeddedWorker, with_worker
from tests.worker.handlers import EMBEDDED

application = with_worker(get_asgi_application(), **EMBEDDED)


def post_worker_init(worker: Any) -> None:
    worker.embedded = EmbeddedWorker(**EMBEDDED)
    worker.embedded.start()


def worker_exit(server: Any, worker: Any) -> None:
    worker.embedded.stop()
