"""JobStep: what a step of a job has returned."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from .fields import PlainJSONField
from .read_only import ReadOnlyManager, ReadOnlyModel
from .relations import SameNumber


class JobStep(ReadOnlyModel):
    """A step that a job has done (``current().step``): a later delivery gets its value and does not run it again.

    It goes with its job.
    """

    instead: ClassVar[dict[str, str]] = {"create": "current().step() in a task"}

    pk = models.CompositePrimaryKey("seq", "name")
    seq = models.BigIntegerField()
    name = models.TextField(db_collation="C")
    value = PlainJSONField(null=True)
    done_at = models.DateTimeField()
    #: The delivery that did it.
    delivery = models.IntegerField()

    job = SameNumber("leasequeue.Job", related_name="steps")

    objects = ReadOnlyManager["JobStep"]()

    def __str__(self) -> str:
        return f"step {self.name} of job {self.seq}"
