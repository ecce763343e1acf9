"""django-absurd: ``python absurd_driver.py CONNECTION JOBS THREADS``; its worker is ``manage.py absurd_worker``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command

VARIABLE = "LEASEQUEUE_BENCH_CONNECTION"
_DONE = "SELECT count(*) FROM absurd.t_default WHERE state = 'completed'"


def setup(parts: dict[str, Any]) -> None:
    """Configure Django."""
    names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    database = {names[name]: value for name, value in parts.items() if name in names}
    settings.configure(
        SECRET_KEY="bench",  # nosec  # made up, for a moment
        USE_TZ=True,
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "CONN_MAX_AGE": None, **database}},
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_absurd"],
        TASKS={"default": {"BACKEND": "django_absurd.backends.AbsurdBackend"}},
    )
    django.setup()


def main(text: str, jobs: int, threads: int) -> None:
    """Enqueue, run, and print the seconds."""
    setup(json.loads(text))
    from absurd_tasks import five_steps
    from django.db import connection, transaction

    call_command("migrate", verbosity=0)
    with transaction.atomic():
        for number in range(jobs):
            five_steps.enqueue(number)

    def count() -> int:
        with connection.cursor() as cursor:
            cursor.execute(_DONE)
            return int(cursor.fetchone()[0])

    began = time.monotonic()
    command = [sys.executable, __file__, "absurd_worker", "--concurrency", str(threads)]
    environment = {**os.environ, VARIABLE: text}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        while count() < jobs and worker.poll() is None:
            time.sleep(0.05)
        seconds, done = time.monotonic() - began, count()
        worker.kill()
    sys.stdout.write(json.dumps({"done": done, "seconds": seconds}) + "\n")


if __name__ == "__main__":
    if VARIABLE in os.environ:
        setup(json.loads(os.environ[VARIABLE]))
        call_command(*sys.argv[1:])
    else:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
