"""Unfold: its own templates for Django's admin, on Tailwind."""

from testproject.settings import INSTALLED_APPS
from tests.hosts.settings_plain import *  # noqa: F403

INSTALLED_APPS = ["unfold", *INSTALLED_APPS]
THEME = "unfold/css/styles.css"
