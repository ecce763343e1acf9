"""Timing a piece of work together with what it costs: CPU on both sides and write-ahead log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from . import processes
from .figures import Sample
from .sql import statement


class Meter:
    """Measures what happens between two moments, with a connection of its own.

    Args:
        connection: to the server under test.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        info = connection.info
        #: The server's first process when it runs on this machine.
        self.postmaster = processes.postmaster_of(info.backend_pid, info.dbname)

    def wal_position(self) -> int:
        """Return how many bytes of write-ahead log the server has written so far."""
        row = self._connection.execute(statement("wal_position")).fetchone()
        assert row is not None
        return int(row[0])

    def server_cpu(self) -> float | None:
        """Return the CPU seconds of all of the server's processes; ``None`` where they cannot be read."""
        return None if self.postmaster is None else processes.family_cpu(self.postmaster)

    def backend_cpu(self, connection: psycopg.Connection[Any] | None) -> float | None:
        """Return the CPU seconds of the server's process behind a connection; ``None`` where they cannot be read."""
        if connection is None or self.postmaster is None:
            return None
        return processes.cpu_seconds(connection.info.backend_pid)

    @contextmanager
    def measure(self, jobs: int, connection: psycopg.Connection[Any] | None = None) -> Iterator[Sample]:
        """Measure the block. The sample's ``jobs`` may be corrected by the block.

        Args:
            jobs: how many the block works on.
            connection: the one that does the work, where it is one: its CPU time is read by itself as well.
        """
        sample = Sample(jobs, 0.0)
        wal = self.wal_position()
        server = self.server_cpu()
        backend = self.backend_cpu(connection)
        client = time.process_time()
        start = time.perf_counter()
        yield sample
        sample.seconds = time.perf_counter() - start
        sample.client_cpu = time.process_time() - client
        backend_after = self.backend_cpu(connection)
        sample.backend_cpu = None if backend is None or backend_after is None else backend_after - backend
        after = self.server_cpu()
        sample.server_cpu = None if server is None or after is None else after - server
        sample.wal_bytes = self.wal_position() - wal
