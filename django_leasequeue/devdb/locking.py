"""Locks between processes that end with the process that holds them, however it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django_leasequeue.devdb.errors import DevDBError


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file for the length of the block, waiting for it as long as needed.

    Raises:
        DevDBError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_lock(path)
    except PermissionError as error:
        raise DevDBError(
            f"{error.filename} cannot be written: it belongs to another account. Run this as that account or as root, "
            "or delete the directory."
        ) from error
    with _held(descriptor):
        yield


@contextmanager
def locked(directory: str) -> Iterator[None]:
    """Hold a lock on a directory that is there, for the length of the block: nothing is written to it."""
    with _held(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)):
        yield


@contextmanager
def _held(descriptor: int) -> Iterator[None]:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def open_lock(path: Path) -> int:
    """Open a lock file, made if it is missing; return its descriptor."""
    return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
