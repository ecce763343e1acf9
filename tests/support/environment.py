"""The environment of child processes; running Python in one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def python(*arguments: object, seconds: float = 500, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments to its end, whatever that is; what it wrote is text. ``how``: as ``subprocess.run``."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, **how)
