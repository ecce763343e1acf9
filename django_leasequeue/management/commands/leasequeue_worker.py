"""``manage.py leasequeue_worker``: ``runworker`` under a name of its own, for projects where channels has that one."""

from __future__ import annotations

from django_leasequeue.management.commands.runworker import Command

__all__ = ["Command"]
