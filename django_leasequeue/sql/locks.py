"""The names by which sessions find each other: the keys of advisory locks, and the channels of notifications.

Keys and channels belong to a whole database, which may have several installs, each in a schema of its own. So each of
them contains the OID of a table of the install. The search path finds that table as it finds those that the statement
reads: PostgreSQL looks it up when it plans the statement, and again when the search path has changed. A table keeps its
OID when it or its schema is renamed.

Statements and migrations write ``{lock.writers}`` and ``{channel.jobs}``. This module needs no Django.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Keeps our keys away from the small numbers that a host may take for its own.
_BASE = 1280657731


class Lock(NamedTuple):
    """An advisory lock of two keys."""

    #: The table that gives the first key: one that no other lock has.
    table: str
    #: The second key.
    number: str
    #: Who holds it, and against whom.
    purpose: str


LOCKS = {
    "listeners": Lock("leasequeue_ready", "queue id", "who waits for jobs, shared; producers test it, and notify"),
    "writers": Lock("leasequeue_queue", "queue id", "who enqueues in bulk, shared; who deletes it"),
    "caps": Lock("leasequeue_topicstate", "queue id", "one writer at a time in a topic with a cap"),
    "cohorts": Lock("leasequeue_claim", "queue id", "one deal of a queue's cohort at a time"),
    "due": Lock("leasequeue_delayed", "queue id", "one statement at a time sends due jobs to the back of a queue"),
    "slots": Lock("leasequeue_limit", "queue id", "one claim at a time from a queue with a limit of concurrency"),
    "events": Lock("leasequeue_emittedevent", "hash of project and event", "who emits it; who goes to wait, shared"),
    "operations": Lock("leasequeue_bulkoperation", "0", "one start of a bulk operation at a time"),
    "partitions": Lock("leasequeue_leaseevent", "0", "one change of the lease log's partitions at a time"),
    "imports": Lock("leasequeue_operatoraction", "hash of the file's mark", "one import of a jqueue file at a time"),
    "lakes": Lock("leasequeue_lakeconsumer", "hash of the name", "one run of a lake, and of its consumer, at a time"),
}

#: The table whose OID is in the name of a channel, and the name's beginning.
CHANNELS = {
    "jobs": ("leasequeue_ready", "leasequeue_"),
    "reaper": ("leasequeue_reaperterm", "leasequeue_reaper_"),
}

_NAME = re.compile(r"\{(lock|channel)\.(\w+)\}")


def named(text: str) -> str:
    """Return a text of SQL with the keys and channels that it names."""
    return _NAME.sub(_expression, text)


def _expression(found: re.Match[str]) -> str:
    kind, name = found.groups()
    if kind == "lock":
        return f"({_BASE} # '{LOCKS[name].table}'::regclass::oid::int)"
    table, begins = CHANNELS[name]
    return f"('{begins}' || '{table}'::regclass::oid::text)"
