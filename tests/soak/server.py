"""The soak's own PostgreSQL: durable, on a small disk of its own where that can be had, and made to fail."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psycopg

from django_leasequeue.devdb import DATABASE, Server

#: The disk is small, so that it can be filled in a moment.
DISK_MB = 1_000
#: Bytes that are taken at once when the disk is filled.
PIECE = 64 * 1024
#: Connections that the server takes: few, so that they can be used up.
CONNECTIONS = 70

OPTIONS = {
    "max_connections": str(CONNECTIONS),
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    # What a commit does not wait for stays in memory for a while, so that a crash has something to lose.
    "wal_writer_delay": "1s",
}


class Disk:
    """A directory that can be filled up: a small tmpfs, where we may mount one.

    Args:
        path: of the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Why it cannot be filled; "" if it can.
        self.why_not = ""
        self._filler = path / "filler"

    def __enter__(self) -> Self:
        self.path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0711", "soak", str(self.path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            self.why_not = str(error)
        else:
            self.why_not = "" if done.returncode == 0 else " ".join(done.stderr.split()) or "mount failed"
        return self

    def __exit__(self, *error: object) -> None:
        if not self.why_not:
            # Lazily: an end that was not in order may have left a process in it.
            subprocess.run(["umount", "--lazy", str(self.path)], check=False)

    def fill(self) -> None:
        """Take all the room that there is now."""
        if self.why_not:
            raise RuntimeError(f"this disk cannot be filled: {self.why_not}")
        with self._filler.open("ab") as file:
            size = file.tell()
            # Nearly all at once, then what is left; PostgreSQL takes some meanwhile.
            free = os.statvfs(self.path)
            for piece in (free.f_bavail * free.f_frsize * 9 // 10, 64 * PIECE, PIECE):
                with suppress(OSError):
                    while piece > 0:
                        os.posix_fallocate(file.fileno(), size, piece)
                        size += piece

    def clear(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)


class SoakServer:
    """The server, and what can be done to it.

    Args:
        disk: where its data is.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._server = Server(disk.path / "data", durable=True)

    @property
    def url(self) -> str:
        """The ``DATABASE_URL`` of those who connect directly."""
        return self._server.url()

    @property
    def socket(self) -> str:
        """The directory of its socket."""
        return str(self._server.django_database()["HOST"])

    @property
    def log(self) -> Path:
        """The server's log."""
        return self._server.log_file

    def __enter__(self) -> Self:
        self._server.start()
        with self.connect() as connection:
            for name, value in OPTIONS.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self.restart()
        return self

    def __exit__(self, *error: object) -> None:
        self.disk.clear()
        self._server.stop("immediate")
        # The disk goes, and its log with it.
        with suppress(OSError):
            shutil.copy(self.log, self.disk.path.with_name("postgresql.log"))

    def connect(self, name: str = DATABASE, seconds: int = 5) -> psycopg.Connection[Any]:
        """Open a connection."""
        return self._server.connect(name, timeout=seconds)

    def answers(self) -> bool:
        """Whether it answers a query, and may write, by a connection of its own."""
        try:
            with self.connect(seconds=2) as connection:
                connection.execute("SET statement_timeout = '2s'")
                connection.execute("SELECT count(*) FROM leasequeue_queue")
                row = connection.execute("SELECT current_setting('transaction_read_only')").fetchone()
            return row == ("off",)
        except psycopg.Error:
            return False

    def wait(self, seconds: float = 60.0) -> None:
        """Wait until it answers; start it where it has ended for good.

        Raises:
            RuntimeError: it does not.
        """
        end = time.monotonic() + seconds
        while not self.answers():
            if time.monotonic() > end:
                raise RuntimeError(f"PostgreSQL does not come back: see {self.log}")
            if self._server.pid is None:
                self._server.start()
            time.sleep(0.02)

    def start(self) -> None:
        """Start it, after it was ended."""
        self._server.start()

    def restart(self) -> None:
        """Stop it in order, and start it again."""
        self._server.stop("fast")
        self._server.start()

    def stop(self) -> None:
        """End it without a checkpoint."""
        self._server.stop("immediate")

    def kill_postmaster(self) -> None:
        """Kill the postmaster; its children notice."""
        if (pid := self._server.pid) is not None:
            os.kill(pid, signal.SIGKILL)

    def kill_backend(self, chance: float) -> None:
        """Kill the backend of a client: the postmaster ends all others, and recovers.

        Args:
            chance: 0 to 1, which of them.
        """
        with suppress(psycopg.Error), self.connect("postgres") as connection:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND datname = %s ORDER BY pid",
                [DATABASE],
            ).fetchall()
            os.kill(rows[int(chance * len(rows))][0], signal.SIGKILL)

    def spend_wal(self) -> None:
        """Begin another file of the write-ahead log: where there is no room for one PostgreSQL ends itself."""
        with suppress(psycopg.Error), self.connect("postgres") as connection:
            connection.execute("SELECT pg_switch_wal() FROM pg_logical_emit_message(true, 'soak', '')")

    def terminate_backends(self) -> None:
        """End all sessions of clients."""
        with suppress(psycopg.Error), self.connect("postgres") as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND datname = %s",
                [DATABASE],
            )

    @contextmanager
    def setting(self, name: str, value: str) -> Iterator[None]:
        """Set something for all sessions of the database, and take it back; sessions begin anew both times."""
        with self.connect("postgres") as connection:
            connection.execute(f"ALTER DATABASE {DATABASE} SET {name} = '{value}'")
        self.terminate_backends()
        try:
            yield
        finally:
            with self.connect("postgres") as connection:
                connection.execute(f"ALTER DATABASE {DATABASE} RESET {name}")
            self.terminate_backends()

    @contextmanager
    def holding(self, *statements: str) -> Iterator[None]:
        """Hold a transaction open in which these were run."""
        with suppress(psycopg.Error), self.connect() as connection:
            connection.autocommit = False
            for statement in statements:
                connection.execute(statement)
            yield
            connection.rollback()

    def use_up_connections(self, over: threading.Event, seconds: float) -> None:
        """Take every connection that becomes free, for some seconds, until ``over`` is set."""
        taken: list[psycopg.Connection[Any]] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end and not over.is_set():
            try:
                taken.append(self.connect("postgres", seconds=2))
            except psycopg.Error:
                # All are taken. Some of the sessions that work end, so that they have to come back.
                for connection in taken[:1]:
                    with suppress(psycopg.Error):
                        connection.execute(
                            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                            " ORDER BY random() LIMIT 2",
                            [DATABASE],
                        )
                time.sleep(0.05)
        for connection in taken:
            connection.close()
