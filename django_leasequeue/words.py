"""The words of statements: the numbers of states, kinds and marks, keys of advisory locks, channels; ranges of jobs.

One list for the code and for the statements. It needs no Django, because Spark's workers read statements. ``enums.py``
adds the labels that people read; statements write the names: ``flags & {FLOW}``, ``state = {result.FAILED}``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import IntEnum, IntFlag
from typing import NamedTuple


class JobState(IntEnum):
    """The state of a live job."""

    READY = 0
    DELAYED = 1
    LEASED = 2
    DEAD = 3
    RECORD = 4


#: Statements that return live and finished jobs add this to the state of a result.
ENDED = 10
#: Bits of a transaction id and of a timeline in the lease log; the bits above are the epoch.
TXID_BITS, TIMELINE_BITS = 44, 32
#: The outcome of an expired lease whose dead job moves to another topic, by ``move.sql``.
MOVE = -1


class ResultState(IntEnum):
    """The state of a job that ended."""

    COMPLETED = 1
    FAILED = 2
    CANCELLED = 3


class EventKind(IntEnum):
    """The kind of a row of the lease log."""

    ENQUEUED = 1
    CLAIMED = 2
    EXTENDED = 3
    RELEASED = 4
    ACKED = 5
    FAILED = 6
    EXPIRED = 7
    DEAD_LETTERED = 8
    REDRIVEN = 9
    CANCELLED = 10
    LINKED = 11


class Lane(IntEnum):
    """How a job became ready. A claim merges the lanes of a rank by position; a floor bounds the fresh one."""

    #: Given back, promoted or redriven to a place that others have passed.
    AGAIN = 1
    #: Its position was drawn by the transaction that made it ready.
    FRESH = 2


class JobFlag(IntFlag):
    """Flags of an unusual job, or of a claim with such a job: its ack or nack must read the job."""

    #: A caller waits for its result.
    REPLY = 1
    #: It has its own retention of the result.
    RESULT_TTL = 2
    #: It is a dead letter in a dead-letter topic.
    DEAD_LETTER = 4
    #: It has failed before.
    FAILED = 8
    #: Of a claim: its jobs do not all have the same task name.
    MIXED = 16
    #: Its lease expired, or its process died: workers run it in its own process, where it harms no other job.
    SUSPECT = 32
    #: Its payload has more than 16 KiB: a claim counts its bytes.
    LARGE = 64
    #: It is under a limit or in a workflow: its end may make others ready.
    FLOW = 128
    #: It has a permit of a rate: a worker starts it at once or gives it back. Of a claim: its queue has a limit of
    #: concurrency.
    RATED = 256
    #: It is suspended, and keeps the slot of its limit.
    KEEPS_SLOT = 512
    #: Its worker gave it back for a time and did not start it: its task is paused, or not found there. The highest
    #: flag, so that an index finds those above the others.
    PUT_OFF = 1024

    #: The flags that a claim takes over from its jobs.
    OF_CLAIM = REPLY | RESULT_TTL | DEAD_LETTER | FAILED | SUSPECT | FLOW
    #: An ack of a claim with one of these needs the general statement, ``finish.sql``. (With ``REPLY`` alone
    #: ``finish_one.sql`` does.)
    UNUSUAL = RESULT_TTL | DEAD_LETTER | FAILED | MIXED | SUSPECT | LARGE


class TokenBit(IntFlag):
    """The lowest bits of a claim's token: they name the statement that completes its jobs, so an ack asks nobody."""

    #: ``finish.sql``: the claim has one of ``JobFlag.UNUSUAL``.
    GENERAL = 1
    #: Several at once by ``finish.sql``, one by ``finish_one.sql``: callers wait, and nothing else is unusual.
    CALLERS = 2


class MemberState(IntEnum):
    """The state of a job in its workflow. A job that is not open has ended, unless a retry reopens it."""

    OPEN = 0
    COMPLETED = 1
    FAILED = 2
    CANCELLED = 3


class WorkflowState(IntEnum):
    """The state of a workflow. A failed one runs again when its failed jobs are retried."""

    RUNNING = 0
    COMPLETED = 1
    FAILED = 2
    CANCELLED = 3


class TurnKind(IntEnum):
    """The work of a claimer for an event of limits and workflows."""

    JOIN = 1
    LOOK = 2
    ADMIT = 3
    EXTEND = 4
    FOLLOW = 5


class NodeNext(IntEnum):
    """The next state of a workflow's node, as the statements return that check its parents."""

    #: It waits for its limit only, if it has one.
    STARTS = 0
    #: It waits for its own start time.
    TIMED = 1
    #: It is removed: no node needs it.
    GOES = 2
    #: It has ended, and later nodes do not start.
    BROKEN = 3


class KeyVerdict(IntEnum):
    """The verdict on the job that holds a key: whether another one may have it."""

    #: A job holds the key.
    HELD = 0
    #: No job holds it.
    FREE = 1
    #: A dead job past its time: it is removed first.
    OVER = 2
    #: A unique job that has not started.
    WAITS = 3


class FloorKind(IntEnum):
    """The kind of places that a floor bounds."""

    READY = 0
    DELAYED = 1
    CLAIM = 2
    HEAD = 3
    CLAIMED = 4


class Due(IntFlag):
    """Kinds of due work in a queue, which a claimer does first."""

    #: Leases have expired.
    LEASES = 1
    #: Delayed jobs are due.
    DELAYED = 2
    #: Messages or dead letters have expired.
    EXPIRED = 4
    #: There are events of limits and workflows.
    TURNS = 8


#: Times of delayed jobs without a time: a limit or a workflow holds them, or an earlier job of their workflow failed or
#: was cancelled.
HELD = datetime(9000, 1, 1, tzinfo=UTC)
CUT_OFF = datetime(9001, 1, 1, tzinfo=UTC)

#: The longest time that a job can name: about a hundred years.
MAX_SPAN_MS = 100 * 366 * 86_400_000
#: A later ``run_at`` would not be a ``datetime`` in every time zone.
MAX_YEAR = 9_000
#: Lowest and highest value of the numbers that a job can have.
JOB_NUMBERS: dict[str, tuple[int, int]] = {
    "delay_ms": (0, MAX_SPAN_MS),
    "ttl_ms": (1, MAX_SPAN_MS),
    "result_ttl_ms": (1, MAX_SPAN_MS),
    "max_deliveries": (0, 2**31 - 1),
}
#: Bytes of a job's texts. A channel of PostgreSQL has at most 63.
JOB_TEXTS: dict[str, int] = {"key": 1_024, "name": 1_024, "tag": 256, "reply_to": 63}

_NAMED: dict[str, type[IntEnum | IntFlag]] = {
    "token": TokenBit,
    "result": ResultState,
    "event": EventKind,
    "member": MemberState,
    "workflow": WorkflowState,
    "turn": TurnKind,
    "floor": FloorKind,
    "due": Due,
    "next": NodeNext,
    "key": KeyVerdict,
}
#: Names in statements. Flags, states of live jobs and lanes have no prefix: ``{FLOW}``, ``{READY}``, ``{FRESH}``; the
#: others have one: ``{event.ACKED}``. Two are times.
NUMBERS: dict[str, int] = {"ENDED": ENDED, "MOVE": MOVE, "TXID_BITS": TXID_BITS, "TIMELINE_BITS": TIMELINE_BITS}
for _words in (JobFlag, JobState, Lane):
    NUMBERS |= {name: word.value for name, word in _words.__members__.items()}
for _of, _kind in _NAMED.items():
    NUMBERS |= {f"{_of}.{name}": word.value for name, word in _kind.__members__.items()}
TIMES = {name: f"'{time:%Y-%m-%d %H:%M}+00'" for name, time in {"HELD": HELD, "CUT_OFF": CUT_OFF}.items()}

# Keys and channels belong to a whole database, which may have several installs, each in a schema of its own. So each of
# them contains the OID of a table of the install. The search path finds that table as it finds those that the statement
# reads: PostgreSQL looks it up when it plans the statement, and again when the search path has changed. A table keeps
# its OID when it or its schema is renamed. Statements and migrations write ``{lock.writers}`` and ``{channel.jobs}``.

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
