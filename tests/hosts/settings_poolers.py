"""Queues in two databases, each behind a pooler of its own in transaction mode."""

import os
from datetime import timedelta

from django.core.management import call_command
from django.utils import timezone

from django_leasequeue.devdb import database_from_url
from testproject.settings import DATABASES
from tests.hosts.settings_plain import *  # noqa: F403

DATABASES = {
    "default": {**DATABASES["default"], "DISABLE_SERVER_SIDE_CURSORS": True},
    "far": {**database_from_url(os.environ["FAR_URL"]), "DISABLE_SERVER_SIDE_CURSORS": True},
}
LEASEQUEUE = {
    "DATABASES": ["default", "far"],
    "ROUTER": "tests.hosts.settings_poolers.route",
    "LISTEN_DSN": {"default": os.environ["DIRECT_URL"], "far": os.environ["FAR_DIRECT_URL"]},
}


def route(project: str, queue: str) -> str:
    return "far" if queue == "far" else "default"


def prepare() -> None:
    call_command("migrate", verbosity=0)
    call_command("migrate", database="far", verbosity=0)


def while_a_worker_runs() -> str:
    from tests.hosts.tasks import add

    far = add.using(queue_name="far")
    delayed = far.using(run_after=timezone.now() + timedelta(seconds=1)).enqueue(1, 1)
    assert [far.enqueue(2, 2).wait(60), delayed.wait(60)] == [4, 2]
    return "tasks and delayed tasks of the other database run, too"
