"""django-db-geventpool: connections from a pool, whose options stand among libpq's."""

from testproject.settings import DATABASES
from tests.hosts.settings_plain import *  # noqa: F403

DATABASES = {
    "default": {
        **DATABASES["default"],
        "ENGINE": "django_db_geventpool.backends.postgresql_psycopg3",
        "ATOMIC_REQUESTS": False,
        "CONN_MAX_AGE": 0,
        "OPTIONS": {**DATABASES["default"].get("OPTIONS", {}), "MAX_CONNS": 12, "REUSE_CONNS": 4},
    }
}
