"""The app: rude in the processes that the soak starts."""

import os
from pathlib import Path

from django.apps import AppConfig

from . import FOLDER


class RudeApp(AppConfig):
    name = "tests.soak.rude_app"

    def ready(self) -> None:
        if FOLDER in os.environ:
            from .deeds import join

            join(Path(os.environ[FOLDER]))
