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
from django_leasequeue.devdb.config import PORT, SUPERUSER
from django_leasequeue.devdb.database_url import url_from_database

from .clock import Clock

#: The disk is small, so that it can be filled in a moment.
DISK_MB = 1_400
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
    """A directory that can be filled up: a small tmpfs, where we may mount one."""

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


class Node(Server):
    """One server of the soak's: with a clock that can be stepped, and able to become the standby of another."""

    def __init__(self, data_dir: Path, clock: Clock) -> None:
        super().__init__(data_dir, durable=True)
        self._clock = clock

    @property
    def host(self) -> str:
        """The directory of its socket."""
        return str(self.django_database()["HOST"])

    def copy(self, primary: Node) -> None:
        """Become a standby of a server that runs, and wait until it receives the log."""
        account = self._account()
        self.data_dir.mkdir(mode=0o700)
        open_path(account, self.data_dir)
        if account:
            os.chown(self.data_dir, account.uid, account.gid)
        options = [
            "-h", primary.host, "-p", str(PORT), "-U", SUPERUSER, "-D", str(self.data_dir), "-R", "-N", "-c", "fast",
        ]  # fmt: skip
        done = run([self.bin_dir / "pg_basebackup", *options], account, 120)
        if done.returncode:
            raise OSError(f"pg_basebackup: {done.stdout.strip()}")
        # Of the other one's socket, which is in its data.
        (self.data_dir / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)
        self.start()
        self.until("SELECT status = 'streaming' FROM pg_stat_wal_receiver")

    def until(self, condition: str, *values: object) -> None:
        """Wait until a query is true."""
        end = time.monotonic() + 30
        with self.connect("postgres") as connection:
            while (row := connection.execute(condition, values).fetchone()) is None or not row[0]:
                if time.monotonic() > end:
                    raise OSError(f"the standby: not within 30 s: {condition}")
                time.sleep(0.02)

    def promote(self) -> None:
        """Become a primary."""
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
        self._server = self._node()
        self._link = disk.path / "primary"
        #: Held while something is done to it that cannot go on beside a failover.
        self.busy = threading.Lock()

    def _node(self) -> Node:
        return Node(self.disk.path / f"node{next(self._nodes)}", self._clock)

    @property
    def url(self) -> str:
        """The ``DATABASE_URL`` of those who connect directly."""
        return url_from_database({**self._server.django_database(), "HOST": self.socket})

    @property
    def socket(self) -> str:
        """The directory of the primary's socket."""
        return str(self._link)

    @property
    def log(self) -> Path:
        """The server's log."""
        return self._server.log_file

    def __enter__(self) -> Self:
        self._server.start()
        self._lead(self._server)
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

    def _lead(self, node: Node) -> None:
        new = self._link.with_suffix(".new")
        new.symlink_to(node.host)
        new.replace(self._link)
        self._server = node

    @contextmanager
    def standby(self) -> Iterator[Node]:
        """Have a standby of the primary, whose data goes again with the block, unless it was promoted."""
        node, before = self._node(), self._server
        try:
            node.copy(before)
            yield node
        finally:
            gone = before if self._server is node else node
            with suppress(psycopg.Error):
                gone.stop("immediate")
            shutil.rmtree(gone.data_dir, ignore_errors=True)

    def hand_over(self, node: Node) -> None:
        """End the primary in order, and promote the standby: it has all that was committed."""
        self._server.stop("fast")
        end = run([node.bin_dir / "pg_controldata", self._server.data_dir], None).stdout
        at = end.partition("Latest checkpoint location:")[2].split()[0]
        node.until("SELECT pg_last_wal_receive_lsn() >= %s::pg_lsn", at)
        node.promote()
        self._lead(node)

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
        """Promote the standby, as it is: the primary has ended."""
        node.promote()
        self._lead(node)

    def connect(self, name: str = DATABASE, seconds: int = 5) -> psycopg.Connection[Any]:
        """Open a connection."""
        info = make_conninfo(host=self.socket, port=PORT, user=SUPERUSER, dbname=name)
        return psycopg.connect(info, connect_timeout=seconds, autocommit=True)

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
        """Wait until it answers; start it where it has ended for good."""
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

    @contextmanager
    def last_moment(self, backend: int) -> Iterator[None]:
        """Stop all processes but one backend, so that no other commit flushes what it writes; then kill all of them.

        Where a stopped process holds what that backend needs, all are killed after a second.
        """
        postmaster = self._server.pid
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

    def kill_backend(self, chance: float) -> None:
        """Kill the backend of a client: the postmaster ends all others, and recovers."""
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

    def cancel_statements(self, over: threading.Event, seconds: float) -> int:
        """Cancel one after the other of the statements that run, for some seconds; return how many were."""
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end and not over.wait(0.05):
            with suppress(psycopg.Error), self.connect("postgres", seconds=2) as connection:
                count += connection.execute(
                    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
                    " AND datname = %s AND state = 'active' ORDER BY random() LIMIT 1",
                    [DATABASE],
                ).rowcount
        return count

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
