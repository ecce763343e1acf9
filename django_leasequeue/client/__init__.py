"""A client of the HTTP door ``/v0/topics``, for workers and producers outside of the Django project.

It needs httpx (extra ``client``) and neither Django nor its settings.
"""

from __future__ import annotations

try:
    import httpx as _httpx  # noqa: F401  (only to say what is missing)
except ImportError as error:
    raise ImportError("django_leasequeue.client needs httpx: pip install 'django-leasequeue[client]'") from error

from .client import AsyncClient, Client
from .errors import (
    ApiError,
    BadAnswer,
    ClientError,
    ConnectionFailed,
    Forbidden,
    InvalidRequest,
    LogTruncated,
    NotAQueue,
    ServerUnavailable,
    Throttled,
    TopicConflict,
    TopicFull,
    TopicNotFound,
    Unauthorized,
)
from .messages import ClientJob, Page, Record, Settled, Written
from .retries import NEVER, Retry
from .worker import Again, Worker

__all__ = [
    "NEVER",
    "Again",
    "ApiError",
    "AsyncClient",
    "BadAnswer",
    "Client",
    "ClientError",
    "ClientJob",
    "ConnectionFailed",
    "Forbidden",
    "InvalidRequest",
    "LogTruncated",
    "NotAQueue",
    "Page",
    "Record",
    "Retry",
    "ServerUnavailable",
    "Settled",
    "Throttled",
    "TopicConflict",
    "TopicFull",
    "TopicNotFound",
    "Unauthorized",
    "Worker",
    "Written",
]
