"""UniqueKey: the job that holds a key of unique jobs, and until when."""

from __future__ import annotations

from django.db import models

from .queue import Queue


class UniqueKey(models.Model):
    """A key that a call with ``unique_until``, ``unique_for`` or ``on_conflict``, or a task with a key, has taken.

    Its row is the lock under which callers decide about the key. Whether it is free is said by where its job stands;
    the row stays until the next call takes it, or until its job is gone.
    """

    pk = models.CompositePrimaryKey("queue", "key")
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    key = models.TextField(db_collation="C")
    #: The job that took it; 0 where the call found that a job without these options has it.
    seq = models.BigIntegerField(default=0)
    #: The key is free from then on, whatever its job does; null: it goes by its job.
    free_at = models.DateTimeField(null=True)
    #: The key is free when its job starts, not only when that has ended.
    until_start = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"unique key {self.key}"
