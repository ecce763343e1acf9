"""The pages of Django's admin, one module for each kind.

It reads through the public models where it can, and changes jobs through the engine only. Nothing imports it. Start
at `jobs.py`, the page of a job; its list is in `job_list.py`, and what all pages share in `pages.py`.
"""

from . import (  # noqa: F401  (they register their pages)
    audit,
    deadletters,
    jobs,
    limits,
    operations,
    operators,
    overview,
    queues,
    recurring,
    workflows,
)
