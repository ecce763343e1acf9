"""The environment of child processes."""

import os
from pathlib import Path

from django.conf import settings

BASE_DIR = Path(settings.BASE_DIR)


def child_environment(database_url: str) -> dict[str, str]:
    """This process's environment for a child that is to use another database."""
    python_path = os.pathsep.join(filter(None, [str(BASE_DIR), os.environ.get("PYTHONPATH")]))
    return {
        **os.environ,
        "DATABASE_URL": database_url,
        # A test that overrides a setting leaves settings.SETTINGS_MODULE empty.
        "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE or os.environ["DJANGO_SETTINGS_MODULE"],
        "PYTHONPATH": python_path,
        "PYTHONUNBUFFERED": "1",
    }
