"""DeadLetter: a job seen as a dead letter. A proxy: it gives the pages of triage their place in the admin."""

from __future__ import annotations

from .job import Job


class DeadLetter(Job):
    """A job or record that used up its deliveries. Read and changed by the engine, never through this class."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = "dead letter"
