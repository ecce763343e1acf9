"""Behind a pooler in session mode: nothing is special, and the warning is silenced as the documentation says."""

from tests.hosts.settings_plain import *  # noqa: F403

SILENCED_SYSTEM_CHECKS = ["leasequeue.W023"]
