"""The pages of Django's admin, one module for each kind."""

from . import apikeys  # noqa: F401  (registers its pages)
