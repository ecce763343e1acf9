"""Behind a pooler in transaction mode, with what the documentation says."""

import os

from testproject.settings import DATABASES
from tests.hosts.settings_plain import *  # noqa: F403

DATABASES = {"default": {**DATABASES["default"], "DISABLE_SERVER_SIDE_CURSORS": True}}
LEASEQUEUE = {"LISTEN_DSN": os.environ["DIRECT_URL"]}
