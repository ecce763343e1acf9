"""The worker: claims jobs in batches, runs them in threads and in an event loop, and settles them in batches.

`runworker` and tests start it; it imports the engine, notify, metrics and the reaper, and no task: `handler` says how
a job is run. Start at `worker.py` (its parts), then `fetcher.py` (claims), `threads.py` (runs) and `acknowledger.py`
(settles).
"""

from __future__ import annotations

from .control import JobAborted, JobControl, JobTimeout
from .handler import GiveUp, Handler, Retry
from .options import ExitCode, load_options
from .worker import Worker

__all__ = [
    "ExitCode",
    "GiveUp",
    "Handler",
    "JobAborted",
    "JobControl",
    "JobTimeout",
    "Retry",
    "Worker",
    "load_options",
]
