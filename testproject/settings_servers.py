"""Settings with queues on several servers: ``LEASEQUEUE_SERVERS`` names them, JSON ``{alias: DATABASE_URL}``."""

import json
import os

from django_leasequeue.devdb import database_from_url
from testproject.settings import *  # noqa: F403

DATABASES = {alias: database_from_url(url) for alias, url in json.loads(os.environ["LEASEQUEUE_SERVERS"]).items()}
LEASEQUEUE = {"DATABASES": list(DATABASES), "ROUTER": "testproject.settings_servers.route"}


def route(project: str, queue: str) -> str:
    """Return the server that a queue's name begins with, as in ``far.mail``; ``default`` for all others."""
    server = queue.partition(".")[0]
    return server if server in DATABASES else "default"
