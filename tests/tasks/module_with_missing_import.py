"""A module that needs what is not there."""

import not_installed  # type: ignore[import-not-found]  # noqa: F401  (missing on purpose)
