"""Grappelli: its own templates for Django's admin, with some of Django's variables."""

from testproject.settings import INSTALLED_APPS
from tests.hosts.settings_plain import *  # noqa: F403

INSTALLED_APPS = ["grappelli", *INSTALLED_APPS]
THEME = "grappelli/stylesheets/screen.css"
# Grappelli has no layout for phones.
WIDTHS = (1280,)
