"""The pages of Django's admin, one module for each kind."""

from . import apikeys, audit_page, deadletters, jobs, operations, queues, workers  # noqa: F401  (they register their pages)
