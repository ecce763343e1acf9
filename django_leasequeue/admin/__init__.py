"""The pages of Django's admin, one module for each kind.

It reads through the public models where it can, and changes jobs through the engine only. Nothing imports it. Start
at `jobs.py`: the model admin that the pages of jobs (`job_list`, `job_page`, `job_search`) hang on.
"""

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
