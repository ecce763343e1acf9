"""A host with nothing around its connection: what the others begin with."""

from typing import Any

from django.db import connection

from testproject.settings import *  # noqa: F403  (the whole of the other settings)

DEBUG = False
ROOT_URLCONF = "tests.hosts.urls"
#: A file that each page of the admin has.
THEME = "admin/css/base.css"
#: Windows in which the pages are looked at: a desk's and a phone's.
WIDTHS = (1280, 390)
#: How many statements of a page that enqueues 20 jobs the host's tool sees at least.
SEES = 20
#: What the environment of a worker, and of commands, has beside that of the web.
WORKER: dict[str, str] = {}


def seen(response: Any) -> int:
    """Return how many of the statements that write a job the host's tool has seen; here it is Django's own log."""
    connection.force_debug_cursor = True
    return sum("INSERT INTO leasequeue_job" in each["sql"] for each in connection.queries_log)
