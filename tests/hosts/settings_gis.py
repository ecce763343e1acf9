"""GeoDjango: its backend teaches each connection about geometries."""

from django.core.management import call_command
from django.db import connection

from testproject.settings import DATABASES, INSTALLED_APPS
from tests.hosts.settings_plain import *  # noqa: F403

DATABASES = {"default": {**DATABASES["default"], "ENGINE": "django.contrib.gis.db.backends.postgis"}}
INSTALLED_APPS = [*INSTALLED_APPS, "django.contrib.gis"]


def prepare() -> None:
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE place (point geometry)")


def beside() -> None:
    from django.contrib.gis.geos import Point

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO place VALUES (%s) RETURNING ST_X(point)",
            [connection.ops.Adapter(Point(3, 4))],  # type: ignore[attr-defined]
        )
        assert cursor.fetchone() == (3.0,)
