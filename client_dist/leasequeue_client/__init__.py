"""The HTTP client of django-leasequeue, without Django."""

from .client import *  # noqa: F403
from .client import __all__ as __all__
