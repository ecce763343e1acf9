"""JobStep: what a step of a job has returned."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from .fields import PlainJSONField
from .read_only import ReadOnlyManager, ReadOnlyModel
from .relations import SameNumber


class JobStep(ReadOnlyModel):
    """A step that a job has done (``current().step``): a later delivery gets its value and does not run it again.

    A sleep and a wait for an event are steps too, without a value as long as they last. Steps go with their job.
    """

    instead: ClassVar[dict[str, str]] = {"create": "current().step() in a task"}

    pk = models.CompositePrimaryKey("seq", "name")
    seq = models.BigIntegerField()
    #: Its place among the steps of the job, in the order in which they were kept.
    number = models.IntegerField()
    name = models.TextField(db_collation="C")
    value = PlainJSONField(null=True)
    done_at = models.DateTimeField()
    #: The delivery that did it.
    delivery = models.IntegerField()
    #: Of a sleep or a wait: when it ends at the latest.
    until = models.DateTimeField(null=True)
    #: What it waits for, and the project of that; null when it is over.
    project = models.TextField(db_collation="C", null=True)
    event = models.TextField(db_collation="C", null=True)

    job = SameNumber("leasequeue.Job", related_name="steps")

    objects = ReadOnlyManager["JobStep"]()

    class Meta:
        indexes = (
            models.Index(
                fields=["event", "project", "seq"],
                name="leasequeue_jobstep_event",
                condition=models.Q(event__isnull=False),
            ),
            models.Index(fields=["seq"], name="leasequeue_jobstep_waiting", condition=models.Q(event__isnull=False)),
            # What sleeps, the oldest first: for people and figures.
            models.Index(
                fields=["done_at", "seq"],
                name="leasequeue_jobstep_asleep",
                condition=models.Q(value__isnull=True, event__isnull=True),
            ),
        )

    def __str__(self) -> str:
        return f"step {self.name} of job {self.seq}"
