"""Django's own pool of connections."""

from testproject.settings import DATABASES
from tests.hosts.settings_plain import *  # noqa: F403

# For the 8 threads of a worker, and its other calls.
DATABASES = {"default": {**DATABASES["default"], "OPTIONS": {"pool": {"min_size": 1, "max_size": 10, "timeout": 20}}}}
