"""The settings of the benchmark's workers: the host's, with a tasks backend of the benchmark's own.

``LEASEQUEUE_BENCH_SETTINGS`` names the host's settings module, ``LEASEQUEUE_BENCH_DATABASE`` the alias that tasks are
enqueued to, for processes that enqueue. What the host says about workers is left out, so that a
figure does not depend on it.
"""

import os
from importlib import import_module

from testproject.bench.options import PROJECT

_host = import_module(os.environ["LEASEQUEUE_BENCH_SETTINGS"])
globals().update({name: getattr(_host, name) for name in dir(_host) if name.isupper()})

# Tasks with steps use Django's connection: opening one for each job would cost more than five steps.
DATABASES = {alias: {**database, "CONN_MAX_AGE": None} for alias, database in _host.DATABASES.items()}
TASKS = {
    "default": {
        "BACKEND": "django_leasequeue.tasks.LeaseQueueBackend",
        "QUEUES": [],
        "OPTIONS": {"project": PROJECT, "database": os.environ.get("LEASEQUEUE_BENCH_DATABASE")},
    }
}
LEASEQUEUE = {**getattr(_host, "LEASEQUEUE", {}), "WORKER": {}}
