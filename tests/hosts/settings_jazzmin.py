"""Jazzmin: its own templates for Django's admin, on Bootstrap."""

from testproject.settings import INSTALLED_APPS
from tests.hosts.settings_plain import *  # noqa: F403

INSTALLED_APPS = ["jazzmin", *INSTALLED_APPS]
JAZZMIN_UI_TWEAKS = {"default_theme_mode": "auto"}
THEME = "jazzmin/css/main.css"
