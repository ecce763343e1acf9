"""The soak's own PostgreSQL: durable, on a small disk where that can be had, made to fail and to fail over."""

from __future__ import annotations

import itertools
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
from psycopg.conninfo import make_conninfo

from django_leasequeue.devdb import DATABASE, Server
from django_leasequeue.devdb.account import Account, open_path, run
from django_leasequeue.devdb.database_url import url_from_database
from django_leasequeue.devdb.server import PORT, SUPERUSER

from .clock import Clock, why_not

#: The disk is small, so that it can be filled in a moment.
DISK_MB = 1_400
#: Bytes that are taken at once when the disk is filled.
PIECE = 64 * 1024
#: Connections that the server takes: few, so that they can be used up.
CONNECTIONS = 70
#: What a commit does not wait for stays in memory for a while, so that a crash has something to lose.
WAL_DELAY = "1s"

OPTIONS = {
    "max_connections": str(CONNECTIONS), "shared_buffers": "64MB", "max_wal_size": "256MB",
    "wal_writer_delay": WAL_DELAY,
}  # fmt: skip
#: The sessions of clients.
CLIENTS = f"pg_stat_activity WHERE backend_type = 'client backend' AND datname = '{DATABASE}'"


class Disk:
    """A directory that can be filled up: a small tmpfs, where we may mount one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Why it cannot be filled; "" if it can.
        self.why_not = ""
        self._filler = path / "filler"

    def __enter__(self) -> Self:
        self.path.mkdir()
        options = f"size={DISK_MB}m,mode=0711"
        self.why_not = why_not(["mount", "-t", "tmpfs", "-o", options, "soak", str(self.path)])
        return self

    def __exit__(self, *error: object) -> None:
        if not self.why_not:
            # Lazily: an end that was not in order may have left a process in it.
            subprocess.run(["umount", "--lazy", str(self.path)], check=False)

    def fill(self) -> None:
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
        self._filler.unlink(missing_ok=True)


class Node(Server):
    """One server of the soak's: with a clock that can be stepped, and able to become the standby of another."""

    def __init__(self, data_dir: Path, clock: Clock) -> None:
        super().__init__(data_dir, durable=True)
        self._clock = clock

    @property
    def host(self) -> str:
        return str(self.django_database()["HOST"])

    def copy(self, primary: Node) -> None:
        """Become a standby of a server that runs, and wait until it receives the log."""
        account = self._account()
        self.data_dir.mkdir(mode=0o700)
        open_path(account, self.data_dir)
        if account:
            os.chown(self.data_dir, account.uid, account.gid)
        options = ["-h", primary.host, "-p", str(PORT), "-U", SUPERUSER, "-D", str(self.data_dir)]
        done = run([self.bin_dir / "pg_basebackup", *options, "-R", "-N", "-c", "fast"], account, 120)
        if done.returncode:
            raise OSError(f"pg_basebackup: {done.stdout.strip()}")
        # Of the other one's socket, which is in its data.
        (self.data_dir / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)
        self.start()
        self.until("SELECT status = 'streaming' FROM pg_stat_wal_receiver")

    def until(self, condition: str, *values: object) -> None:
        end = time.monotonic() + 30
        with self.connect("postgres") as connection:
            while (row := connection.execute(condition, values).fetchone()) is None or not row[0]:
                if time.monotonic() > end:
                    raise OSError(f"the standby: not within 30 s: {condition}")
                time.sleep(0.02)

    def promote(self) -> None:
        done = self._pg_ctl(self._account(), "promote", "-t", "60", timeout=90)
        if done.returncode:
            raise OSError(f"pg_ctl promote: {done.stdout.strip()}")

    def _pg_ctl(self, account: Account | None, *arguments: str, timeout: int) -> subprocess.CompletedProcess[str]:
        command = ["env", *self._clock.environment, str(self.bin_dir / "pg_ctl"), "-D", str(self.data_dir), "-w"]
        return run([*command, *arguments], account, timeout)


class SoakServer:
    """The server, and what can be done to it. A link names the one of its nodes that is the primary."""

    def __init__(self, disk: Disk, clock: Clock) -> None:
        self.disk = disk
        self._clock = clock
        self._nodes = itertools.count(1)
        self.primary = self._node()
        #: The directory of the primary's socket: a link.
        self.socket = str(disk.path / "primary")
        #: Held while something is done to it that cannot go on beside a failover.
        self.busy = threading.Lock()

    def _node(self) -> Node:
        return Node(self.disk.path / f"node{next(self._nodes)}", self._clock)

    @property
    def url(self) -> str:
        return url_from_database({**self.primary.django_database(), "HOST": self.socket})

    def __enter__(self) -> Self:
        self.primary.start()
        self._lead(self.primary)
        with self.connect() as connection:
            for name, value in OPTIONS.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self.restart()
        return self

    def __exit__(self, *error: object) -> None:
        self.disk.clear()
        self.primary.stop("immediate")
        # The disk goes, and its log with it.
        with suppress(OSError):
            shutil.copy(self.primary.log_file, self.disk.path.with_name("postgresql.log"))

    def _lead(self, node: Node) -> None:
        new = Path(f"{self.socket}.new")
        new.symlink_to(node.host)
        new.replace(self.socket)
        self.primary = node

    @contextmanager
    def standby(self) -> Iterator[Node]:
        """Have a standby of the primary, whose data goes again with the block, unless it was promoted."""
        node, before = self._node(), self.primary
        try:
            node.copy(before)
            yield node
        finally:
            gone = before if self.primary is node else node
            with suppress(psycopg.Error):
                gone.stop("immediate")
            shutil.rmtree(gone.data_dir, ignore_errors=True)

    def hand_over(self, node: Node) -> None:
        """End the primary in order, and promote the standby: it has all that was committed."""
        self.primary.stop("fast")
        end = run([node.bin_dir / "pg_controldata", self.primary.data_dir], None).stdout
        at = end.partition("Latest checkpoint location:")[2].split()[0]
        node.until("SELECT pg_last_wal_receive_lsn() >= %s::pg_lsn", at)
        self.take_over(node)

    def cut_off(self, node: Node) -> int:
        """Have the standby receive nothing more; return a time up to which it has all that was answered."""
        known = time.monotonic_ns()
        with self.connect("postgres") as connection:
            # Its commit flushes all commits before it, also those that did not wait for the disk.
            connection.execute("SELECT pg_logical_emit_message(true, 'soak', '')")
            row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        node.until("SELECT pg_last_wal_receive_lsn() >= %s::pg_lsn", row[0])
        with node.connect("postgres") as connection:
            connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
            connection.execute("SELECT pg_reload_conf()")
        node.until("SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)")
        return known

    def take_over(self, node: Node) -> None:
        node.promote()
        self._lead(node)

    def connect(self, name: str = DATABASE, seconds: int = 5) -> psycopg.Connection[Any]:
        info = make_conninfo(host=self.socket, port=PORT, user=SUPERUSER, dbname=name)
        return psycopg.connect(info, connect_timeout=seconds, autocommit=True)

    def answers(self) -> bool:
        try:
            with self.connect(seconds=2) as connection:
                connection.execute("SET statement_timeout = '2s'")
                connection.execute("SELECT count(*) FROM leasequeue_queue")
                row = connection.execute("SELECT current_setting('transaction_read_only')").fetchone()
            return row == ("off",)
        except psycopg.Error:
            return False

    def wait(self, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not self.answers():
            if time.monotonic() > end:
                raise RuntimeError(f"PostgreSQL does not come back: see {self.primary.log_file}")
            if self.primary.pid is None:
                self.primary.start()
            time.sleep(0.02)

    def restart(self) -> None:
        self.primary.stop("fast")
        self.primary.start()

    @contextmanager
    def last_moment(self, backend: int) -> Iterator[None]:
        """Stop all processes but one backend, so that no other commit flushes what it writes; then kill all of them.

        Where a stopped process holds what that backend needs, all are killed after a second.
        """
        postmaster = self.primary.pid
        if postmaster is None:
            yield
            return
        # First: a process that it starts meanwhile would survive, and keep its data from the next server.
        os.kill(postmaster, signal.SIGSTOP)
        children = [int(pid) for pid in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()]

        def signalled(pids: list[int], number: int) -> None:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

        over = threading.Timer(1.0, signalled, ([postmaster, *children], signal.SIGKILL))
        over.start()
        signalled([pid for pid in children if pid != backend], signal.SIGSTOP)
        try:
            yield
        finally:
            over.cancel()
            signalled([postmaster, *children], signal.SIGKILL)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with suppress(psycopg.Error), self.connect("postgres", seconds=2) as connection:
            return connection.execute(query).fetchall()
        return []

    def terminate_backends(self) -> None:
        self.ask(f"SELECT pg_terminate_backend(pid) FROM {CLIENTS}")

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
        with suppress(psycopg.Error), self.connect() as connection:
            connection.autocommit = False
            for statement in statements:
                connection.execute(statement)
            yield
            connection.rollback()
