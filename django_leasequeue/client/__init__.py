"""A client of the HTTP API ``/v0/topics``, for workers and producers outside of the Django project.

It needs httpx (extra ``client``) and neither Django nor its settings.
"""

try:
    import httpx as _httpx  # noqa: F401  (for the error below)
except ImportError as error:
    raise ImportError("django_leasequeue.client needs httpx: pip install 'django-leasequeue[client]'") from error

from ..exceptions import EventTimeout
from .client import AsyncClient, Client
from .jobs import AsyncJobSteps, JobSteps, Suspended
from .messages import (
    ApiError,
    BadAnswer,
    ClientError,
    ClientJob,
    ConnectionFailed,
    Forbidden,
    InvalidRequest,
    LeaseLost,
    LogTruncated,
    NotAQueue,
    Page,
    Record,
    ServerUnavailable,
    Settled,
    Suspension,
    Throttled,
    TopicConflict,
    TopicFull,
    TopicNotFound,
    Unauthorized,
    Written,
)
from .plans import NEVER, Retry
from .worker import Again, Worker

__all__ = [
    "NEVER", "Again", "ApiError", "AsyncClient", "AsyncJobSteps", "BadAnswer", "Client", "ClientError", "ClientJob",
    "ConnectionFailed", "EventTimeout", "Forbidden", "InvalidRequest", "JobSteps", "LeaseLost", "LogTruncated",
    "NotAQueue", "Page", "Record", "Retry", "ServerUnavailable", "Settled", "Suspended", "Suspension", "Throttled",
    "TopicConflict", "TopicFull", "TopicNotFound", "Unauthorized", "Worker", "Written",
]  # fmt: skip
