"""The pages of Django's admin, one module for each kind."""

from . import (  # noqa: F401  (they register their pages)
    apikeys,
    audit,
    deadletters,
    jobs,
    limits,
    operations,
    overview,
    queues,
    recurring,
    workers,
    workflows,
)
