"""The worker: claims jobs in batches, runs them in threads and in an event loop, and settles them in batches.

`runworker` and tests start it; it imports the engine, notify, metrics and the reaper, and no task: a `Handler` says how
a job is run. Start at `worker.py` (its parts), then `fetcher.py` (claims), `threads.py` (runs) and `acknowledger.py`
(settles).
"""

from __future__ import annotations

from .control import GiveUp, Handler, JobAborted, JobControl, JobTimeout, Retry
from .worker import ExitCode, Worker, load_options

__all__ = ["ExitCode", "GiveUp", "Handler", "JobAborted", "JobControl", "JobTimeout", "Retry", "Worker", "load_options"]
