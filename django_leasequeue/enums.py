"""The numbers that stand for states and kinds in the tables, and the words that stand for them everywhere else.

Not part of ``models``: the engine and the doors name states before Django has loaded any model.
"""

from enum import IntFlag

from django.db.models import IntegerChoices, TextChoices


class QueueType(TextChoices):
    """The kind of a topic: a queue leases its jobs, a log only keeps records."""

    QUEUE = "queue", "queue"
    LOG = "log", "log"


class JobState(IntegerChoices):
    """The state of a live job."""

    READY = 0, "ready"
    DELAYED = 1, "delayed"
    LEASED = 2, "leased"
    DEAD = 3, "dead"
    RECORD = 4, "record"


class ResultState(IntegerChoices):
    """The state of a job that ended."""

    COMPLETED = 1, "completed"
    FAILED = 2, "failed"
    CANCELLED = 3, "cancelled"


class EventKind(IntegerChoices):
    """The kinds of events of a job: one row of the lease log each."""

    ENQUEUED = 1, "enqueued"
    CLAIMED = 2, "claimed"
    EXTENDED = 3, "extended"
    RELEASED = 4, "released"
    ACKED = 5, "acked"
    FAILED = 6, "failed"
    EXPIRED = 7, "expired"
    DEAD_LETTERED = 8, "dead_lettered"
    REDRIVEN = 9, "redriven"
    CANCELLED = 10, "cancelled"
    LINKED = 11, "linked"


class Lane(IntegerChoices):
    """How a job became ready. A claim merges the lanes of a rank by position; a floor bounds the fresh one."""

    AGAIN = 1, "given back, promoted or redriven to a place that others have passed"
    FRESH = 2, "fresh: its position was drawn by the transaction that made it ready"


class JobFlag(IntFlag):
    """Marks of an unusual job, or of a claim with such a job: an ack or nack of it then reads the job."""

    #: A caller waits for its end.
    REPLY = 1
    #: Its result is kept for a time of its own.
    RESULT_TTL = 2
    #: It is a dead letter in a dead-letter topic.
    DEAD_LETTER = 4
    #: It has failed before.
    FAILED = 8
    #: Of a claim: its jobs do not all have the same task name.
    MIXED = 16
    #: Its lease expired: workers run it alone, so that it takes no other job with it.
    SUSPECT = 32
    #: Its payload has more than 16 KiB: a claim counts its bytes.
    LARGE = 64
    #: It is under a limit or in a workflow: what happens to it may set others free.
    FLOW = 128
    #: Its limit has a rate, which it has paid for: a worker starts it at once or gives it back. Of a claim: its
    #: queue has a limit of concurrency.
    RATED = 256
    #: It sleeps or waits for an event, and keeps the slot of its limit meanwhile.
    KEEPS_SLOT = 512


class MemberState(IntegerChoices):
    """The state of a job in its workflow. What is not open has ended, until it is retried."""

    OPEN = 0, "open"
    COMPLETED = 1, "completed"
    FAILED = 2, "failed"
    CANCELLED = 3, "cancelled"


class WorkflowState(IntegerChoices):
    """The state of a workflow. A failed one runs again when what failed is retried."""

    RUNNING = 0, "running"
    COMPLETED = 1, "completed"
    FAILED = 2, "failed"
    CANCELLED = 3, "cancelled"


class WorkflowShape(IntegerChoices):
    """The form of a workflow's value."""

    VALUE = 0, "value of the last job"
    LIST = 1, "list of the values of the last jobs"
    MAPPING = 2, "mapping of the names of the last jobs to their values"


class TurnKind(IntegerChoices):
    """What a claimer has to do for a turn."""

    JOIN = 1, "bring new jobs under their limits"
    LOOK = 2, "look where jobs stand that have moved"
    ADMIT = 3, "admit jobs of a key"
    EXTEND = 4, "link new nodes of a workflow"
    FOLLOW = 5, "give a node the new number of its job"


class FloorKind(IntegerChoices):
    """The kind of places that a floor bounds."""

    READY = 0, "position of fresh ready jobs"
    DELAYED = 1, "available_at of delayed jobs, microseconds"
    CLAIM = 2, "deadline of claims, microseconds"
    HEAD = 3, "highest number of the jobs that are gone"


class Requeue(TextChoices):
    """Place of a job after its lease expired or was released."""

    ORIGINAL = "original", "original place"
    BACK = "back", "back of its priority"


class PriorityOrder(TextChoices):
    """The way in which a priority becomes a rank."""

    DESC = "desc", "higher first"
    ASC = "asc", "lower first"
    NONE = "none", "no priorities"


class ExhaustAt(TextChoices):
    """The moment at which a job that used up its deliveries is taken out."""

    CLAIM = "claim", "when the next delivery would start"
    RELEASE = "release", "when the last delivery ends"


class Backoff(TextChoices):
    """Delay of a retry that names none."""

    NONE = "none", "none"
    FIXED = "fixed", "fixed"
    LINEAR = "linear", "linear"
    EXPONENTIAL = "exponential", "exponential"
    EXP_EQUAL_JITTER = "exp_equal_jitter", "exponential, equal jitter"
    EXP_FULL_JITTER = "exp_full_jitter", "exponential, full jitter"


class LateAck(TextChoices):
    """The answer to a settle call after the deadline while the job has not been claimed again."""

    REJECT = "reject", "reject"
    ACCEPT = "accept", "accept"


class DedupUntil(TextChoices):
    """The time for which a job's key refuses a second job."""

    TERMINAL = "terminal", "until the job is finished"
    CLAIMED = "claimed", "until the job is claimed"
    RESULT_TTL = "result_ttl", "until its result expires"


class Durability(TextChoices):
    """The storage that a commit of enqueue and ack waits for."""

    EPHEMERAL = "ephemeral", "ephemeral"
    MEMORY = "memory", "memory"
    DISK = "disk", "disk"
    FSYNC = "fsync", "fsync"


class Discard(TextChoices):
    """The answer of a full topic to a write."""

    OLD = "old", "drop the oldest"
    REJECT = "reject", "reject the write"


#: The value of the queue option ``dead_letter`` that keeps a dead job in its own queue (state dead).
DEAD_LETTER_SELF = "self"
