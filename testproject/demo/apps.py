"""The demo app."""

from django.apps import AppConfig


class DemoConfig(AppConfig):
    """``make demo`` runs its command ``demo``."""

    name = "testproject.demo"
    verbose_name = "Demo"
    default_auto_field = "django.db.models.BigAutoField"
