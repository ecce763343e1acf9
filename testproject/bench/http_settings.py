"""The settings of the benchmark's HTTP servers: the host's, with the door alone, and closed to everybody without a key.

``LEASEQUEUE_BENCH_SETTINGS`` names the host's settings module, ``LEASEQUEUE_BENCH_DATABASE`` the alias.
"""

import os
from importlib import import_module

_host = import_module(os.environ["LEASEQUEUE_BENCH_SETTINGS"])
globals().update({name: getattr(_host, name) for name in dir(_host) if name.isupper()})

DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "testproject.bench.http_urls"
LEASEQUEUE = {
    **getattr(_host, "LEASEQUEUE", {}),
    "DATABASE": os.environ["LEASEQUEUE_BENCH_DATABASE"],
    "ROUTER": None,
    "API": {"ACCESS": "keys"},
}
