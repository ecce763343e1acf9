"""The worker: claims jobs in batches, runs them in threads and in an event loop, and settles them in batches."""

from __future__ import annotations

from ..conf.options import WorkerOptions
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
    "WorkerOptions",
    "load_options",
]
