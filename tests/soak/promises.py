"""The promises that the soak holds the queue to, and how a broken one is told."""

from __future__ import annotations

from typing import NamedTuple

from .evidence import SECOND

LOST = "lost"
ROLLED_BACK = "run after a rollback"
UNKNOWN = "run without having been enqueued"
LATE = "started on an expired lease"
OVERLAP = "two runs at once, and the first was not told in time"
TWICE_QUEUED = "two jobs for one key"
INNOCENT = "an innocent died"
HARM = "a job ended the process of a worker again"
WRONG = "a caller got a wrong answer"
SKIPPED = "a reader skipped a record"
REPEATED = "a reader got a record again"
TAKEN_BACK = "a reader was told what is not there"
SLOW = "no job within 3 s after the server came back"
CROWDED = "more jobs of a key at once than its limit allows"
ORDER = "a job of a key that has one at a time started before one enqueued earlier"
RATE = "more starts in a time than a rate allows"
STARVED = "fewer starts than a rate allows, while jobs waited and nothing was done to anybody"
EARLY = "a job of a workflow started before one that it comes after had ended"
RECALLED = "run after its cancel"
ACCEPTED = "an ack was accepted of a job that another had, or the job came again after it"
FORGED = "a call settled a job under a token or a name that is not the holder's"
PAUSED = "claimed from a paused queue"
AGAIN = "a job of a workflow completed, ran again, and no fault explains it"
INPUT = "a job of a workflow got other values than those before it returned"
EFFECTS = "an atomic step left no row, or more than one"
PAID_LATE = "an atomic step was committed after its job had been taken out"
UNDONE = "what a job did is not undone, or was undone twice"
STEP_AGAIN = "a step that was kept was done again, or has another value"
STEP_LATE = "a step was kept by a worker that had lost the lease"
EARLY_WAKE = "a sleep ended early, or was slept again"
MISSED = "a job missed its event"
LEFT_BEHIND = "what a task left behind reached another one, or was called completed"
LEADERLESS = "no reaper led for longer than 15 s"
TICKLESS = "a tick of a recurring task came more than 15 s late"
UNFENCED = "a leader wrote after the term of another one had begun"
UNTRUE = "a health page did not tell the truth"
UNSAID = "a recurring task that cannot run has no error"
INCONSISTENT = "something is left over, or the tables disagree"

#: How long before the end of its lease a job is told that it is lost, at the latest.
NOTICE = SECOND
#: What a handler may take to see that it was told and to write it down.
SEEING = SECOND // 4
#: Until the first job after the server came back.
RECOVERY = 3 * SECOND


class Broken(NamedTuple):
    promise: str
    at: int
    fault: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.promise} (during: {self.fault or 'no fault'}): {self.evidence}"
