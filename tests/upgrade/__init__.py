"""From a release to this version, with both at work on one database: see ``__main__.py``."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
