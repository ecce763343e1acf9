"""The labels of states, kinds and options, as people read them; the numbers are those of ``words.py``.

Not part of ``models``: the engine and the APIs name states before Django has loaded any model.
"""

from django.db.models import IntegerChoices, TextChoices

from . import words

#: Flags of a job or a claim, without labels.
JobFlag = words.JobFlag


class QueueType(TextChoices):
    """The kind of a topic: a queue leases its jobs, a log only keeps records."""

    QUEUE = "queue", "queue"
    LOG = "log", "log"


class JobState(IntegerChoices):
    """The state of a live job."""

    READY = words.JobState.READY, "ready"
    DELAYED = words.JobState.DELAYED, "delayed"
    LEASED = words.JobState.LEASED, "leased"
    DEAD = words.JobState.DEAD, "dead"
    RECORD = words.JobState.RECORD, "record"


class JobStatus(TextChoices):
    """The state of a job as ``Job`` shows it."""

    #: A limit or a workflow holds it.
    WAITING = "waiting", "waiting"
    DELAYED = "delayed", "delayed"
    READY = "ready", "ready"
    LEASED = "leased", "leased"
    COMPLETED = "completed", "completed"
    FAILED = "failed", "failed"
    #: A dead letter.
    DEAD = "dead", "dead"
    CANCELLED = "cancelled", "cancelled"
    #: Past its time to live, and not removed yet.
    EXPIRED = "expired", "expired"


class ResultState(IntegerChoices):
    """The state of a job that ended."""

    COMPLETED = words.ResultState.COMPLETED, "completed"
    FAILED = words.ResultState.FAILED, "failed"
    CANCELLED = words.ResultState.CANCELLED, "cancelled"


class EventKind(IntegerChoices):
    """The kinds of events of a job: one row of the lease log each."""

    ENQUEUED = words.EventKind.ENQUEUED, "enqueued"
    CLAIMED = words.EventKind.CLAIMED, "claimed"
    EXTENDED = words.EventKind.EXTENDED, "extended"
    RELEASED = words.EventKind.RELEASED, "released"
    ACKED = words.EventKind.ACKED, "acked"
    FAILED = words.EventKind.FAILED, "failed"
    EXPIRED = words.EventKind.EXPIRED, "expired"
    DEAD_LETTERED = words.EventKind.DEAD_LETTERED, "dead_lettered"
    REDRIVEN = words.EventKind.REDRIVEN, "redriven"
    CANCELLED = words.EventKind.CANCELLED, "cancelled"
    LINKED = words.EventKind.LINKED, "linked"


class Lane(IntegerChoices):
    """How a job became ready. A claim merges the lanes of a rank by position; a floor bounds the fresh one."""

    AGAIN = words.Lane.AGAIN, "given back, promoted or redriven to a place that others have passed"
    FRESH = words.Lane.FRESH, "fresh: its position was drawn by the transaction that made it ready"


class MemberState(IntegerChoices):
    """The state of a job in its workflow. A job that is not open has ended, unless a retry reopens it."""

    OPEN = words.MemberState.OPEN, "open"
    COMPLETED = words.MemberState.COMPLETED, "completed"
    FAILED = words.MemberState.FAILED, "failed"
    CANCELLED = words.MemberState.CANCELLED, "cancelled"


class WorkflowState(IntegerChoices):
    """The state of a workflow. A failed one runs again when its failed jobs are retried."""

    RUNNING = words.WorkflowState.RUNNING, "running"
    COMPLETED = words.WorkflowState.COMPLETED, "completed"
    FAILED = words.WorkflowState.FAILED, "failed"
    CANCELLED = words.WorkflowState.CANCELLED, "cancelled"


class WorkflowShape(IntegerChoices):
    """The form of a workflow's value."""

    VALUE = 0, "value of the last job"
    LIST = 1, "list of the values of the last jobs"
    MAPPING = 2, "mapping of the names of the last jobs to their values"


class TurnKind(IntegerChoices):
    """The work of a claimer for an event of limits and workflows."""

    JOIN = words.TurnKind.JOIN, "bring new jobs under their limits"
    LOOK = words.TurnKind.LOOK, "look where jobs stand that have moved"
    ADMIT = words.TurnKind.ADMIT, "admit jobs of a key"
    EXTEND = words.TurnKind.EXTEND, "link new nodes of a workflow"
    FOLLOW = words.TurnKind.FOLLOW, "give a node the new number of its job"


class FloorKind(IntegerChoices):
    """The kind of places that a floor bounds."""

    READY = words.FloorKind.READY, "position of fresh ready jobs"
    DELAYED = words.FloorKind.DELAYED, "available_at of delayed jobs, microseconds"
    CLAIM = words.FloorKind.CLAIM, "deadline of claims, microseconds"
    HEAD = words.FloorKind.HEAD, "highest number of the jobs that are gone"
    CLAIMED = words.FloorKind.CLAIMED, "when jobs were asked for last, microseconds"


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
    """The answer to an ack or nack after the deadline, if the job has not been claimed again."""

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
    """The reaction of a full topic to a write."""

    OLD = "old", "drop the oldest"
    REJECT = "reject", "reject the write"


#: The value of the queue option ``dead_letter`` that keeps a dead job in its own queue (state dead).
DEAD_LETTER_SELF = "self"
