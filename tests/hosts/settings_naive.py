"""``USE_TZ = False``, in a zone that is not UTC."""

from tests.hosts.settings_plain import *  # noqa: F403

USE_TZ = False
TIME_ZONE = "Asia/Tokyo"
