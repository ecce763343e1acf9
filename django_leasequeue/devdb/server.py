"""One embedded PostgreSQL server on one data directory: configure, initialise, start, probe, stop."""

import hashlib
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from django_leasequeue.devdb.account import (
    Account,
    DevDBError,
    account_for,
    check_directory,
    exclusive,
    find_binaries,
    is_alive,
    is_zombie,
    open_path,
    open_programs,
    program_version,
    run,
)
from django_leasequeue.devdb.database_url import ENGINE, database_from_url, url_from_database

DATABASE = "leasequeue"
PORT = 5432
SUPERUSER = "postgres"
StopMode = Literal["smart", "fast", "immediate"]

_START_SECONDS = 15.0
#: PostgreSQL itself gives its children five seconds; a busy machine takes longer.
_END_SECONDS = 60.0
_LARGEST_LOG = 10_000_000
_LOG_TAIL = 2_000
# A Unix socket's path holds 107 bytes on Linux and 103 on macOS.
_LONGEST_SOCKET = 100
# The directory is written into a comma-separated list in the configuration and in connection strings.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./+~-]+")

_COMMON = {
    "listen_addresses": "",
    "port": str(PORT),
    "cluster_name": "leasequeue",
    "max_connections": "200",
    "max_wal_size": "4GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
_DURABLE = {"shared_buffers": "256MB"}
# Loses data when the machine fails (not when PostgreSQL does): for clusters that are thrown away. synchronous_commit
# stays on, so that what a transaction says about its own durability can still be seen and tested.
_THROWAWAY = {"shared_buffers": "64MB", "fsync": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The state of a server."""

    running: bool
    data_dir: Path
    pid: int | None = None
    version: str = ""
    connections: int = 0
    """Clients connected now, without the one that asked."""


class Server:
    """A PostgreSQL server on a data directory of its own, reached through a Unix socket.

    The directory is made on first start. Started by root, it has to be root's own (see ``account.py``), and every
    directory above it is opened for passing through. Not ``durable``: without fsync, faster, and the data is lost when
    the machine (not PostgreSQL) fails. ``bin_dir``: where PostgreSQL's programs are; by default they are looked for.
    """

    def __init__(self, data_dir: Path | str, *, durable: bool = True, bin_dir: Path | None = None) -> None:
        #: As it was named: it may be a link.
        self._named = Path(data_dir).expanduser().absolute()
        self.data_dir = self._named.resolve()
        self.durable = durable
        self._bin_dir = bin_dir

    @property
    def bin_dir(self) -> Path:
        """PostgreSQL's programs. Raises DevDBError when there are none."""
        if self._bin_dir is None:
            self._bin_dir = find_binaries()
        return self._bin_dir

    @property
    def log_file(self) -> Path:
        return self.data_dir / "server.log"

    @property
    def _lock_file(self) -> Path:
        return self.data_dir.with_name(f"{self.data_dir.name}.lock")

    @property
    def pid(self) -> int | None:
        """The postmaster's process number, or None when no server runs on this data."""
        pid = _first_number(self.data_dir / "postmaster.pid")
        return pid if pid is not None and is_alive(pid) else None

    def django_database(self, name: str = DATABASE) -> dict[str, Any]:
        """An entry of ``DATABASES`` for a database on this server. Needs no running server."""
        host, port = str(socket_dir(self.data_dir)), str(PORT)
        entry = {"ENGINE": ENGINE, "NAME": name, "USER": SUPERUSER, "HOST": host, "PORT": port}
        return {**entry, "PASSWORD": ""}  # nosec  # B105: none: who may enter the socket's directory is let in

    def conninfo(self, name: str = DATABASE) -> str:
        return make_conninfo(host=str(socket_dir(self.data_dir)), port=PORT, user=SUPERUSER, dbname=name)

    def url(self, name: str = DATABASE) -> str:
        return url_from_database(self.django_database(name))

    def connect(self, name: str = DATABASE, *, timeout: int = 5) -> psycopg.Connection:
        return psycopg.connect(self.conninfo(name), connect_timeout=timeout, autocommit=True)

    def is_ready(self, name: str = "postgres") -> bool:
        """Return whether the database accepts a connection now; a pid file alone proves nothing."""
        # A server without its pid file is ending: its data was deleted.
        if _first_number(self.data_dir / "postmaster.pid") is None:
            return False
        try:
            self.connect(name).close()
        except psycopg.OperationalError:
            return False
        return True

    def start(self) -> bool:
        """Start the server, with a new cluster on first use, and wait until it answers; return whether this call did.

        Any number of processes may call this at once.
        """
        account = self._account()
        if self.is_ready(DATABASE):
            return False
        with exclusive(self._lock_file):
            if self.is_ready():
                self._create_database()
                return False
            open_programs(account, self.bin_dir)
            if not (self.data_dir / "PG_VERSION").exists():
                self._initialise(account)
            self._check_version()
            self._prepare(account)
            self._launch(account)
            self._create_database()
        return True

    def stop(self, mode: StopMode = "fast", *, timeout: int = 30) -> bool:
        """Stop the server and wait for its end, after the timeout by ``immediate``; return whether it was running."""
        account = self._account()
        if self.pid is None:
            return False
        with exclusive(self._lock_file):
            for attempt in dict.fromkeys([mode, "immediate"]):
                self._pg_ctl(account, "stop", "-m", attempt, "-t", str(timeout), timeout=timeout + 30)
                if self.pid is None:
                    return True
        raise DevDBError(f"PostgreSQL (process {self.pid}) on {self.data_dir} does not stop.{self._log_tail()}")

    def status(self) -> ServerStatus:
        try:
            with self.connect("postgres") as connection:
                row = connection.execute(
                    "SELECT current_setting('server_version'),"
                    " (SELECT count(*) FROM pg_stat_activity"
                    "  WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())"
                ).fetchone()
        except psycopg.OperationalError:
            return ServerStatus(running=False, data_dir=self.data_dir)
        assert row is not None
        version, clients = row
        return ServerStatus(running=True, data_dir=self.data_dir, pid=self.pid, version=version, connections=clients)

    def _account(self) -> Account | None:
        """Return the account that the server runs as; ``DevDBError``: root has none, or the data is another's."""
        account = account_for(self.data_dir)
        if account is not None:
            check_directory(self._named, {0, account.uid})
        return account

    def _initialise(self, account: Account | None) -> None:
        self._end_orphan(account)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if any(self.data_dir.iterdir()):
            raise DevDBError(f"{self.data_dir} is not empty and holds no PostgreSQL data: name another directory.")
        self.data_dir.chmod(0o700)
        open_path(account, self.data_dir)
        if account:
            os.chown(self.data_dir, account.uid, account.gid)
        options = initdb_options(program_version(self.bin_dir))
        result = run([self.bin_dir / "initdb", "-D", self.data_dir, *options], account, 120)
        if result.returncode != 0:
            raise DevDBError(f"PostgreSQL's initdb failed on {self.data_dir}:\n{result.stdout.strip()}")
        with (self.data_dir / "postgresql.conf").open("a") as file:
            file.write("\ninclude_if_exists = 'leasequeue.conf'\n")

    def _check_version(self) -> None:
        data = (self.data_dir / "PG_VERSION").read_text().strip()
        program = program_version(self.bin_dir).partition(".")[0]
        if data != program:
            raise DevDBError(
                f"The data in {self.data_dir} was made by PostgreSQL {data}, and the programs in {self.bin_dir} are "
                f"{program}. Delete the directory to begin with an empty database, or install PostgreSQL {data}."
            )

    def _prepare(self, account: Account | None) -> None:
        open_path(account, self.data_dir)
        sockets = socket_dir(self.data_dir)
        if sockets != self.data_dir:
            with suppress(FileExistsError):
                sockets.mkdir(mode=0o700)
            self._has_sockets(account)
            if account:
                os.chown(sockets, account.uid, account.gid, follow_symlinks=False)
        file = self.data_dir / "leasequeue.conf"
        # Made anew each time, whatever account it belonged to, and whatever it led to.
        file.unlink(missing_ok=True)
        with file.open("x") as made:
            made.write(configuration(self.data_dir, durable=self.durable))
        if self.log_file.exists() and self.log_file.stat().st_size > _LARGEST_LOG:
            self.log_file.replace(self.log_file.with_suffix(".log.1"))

    def _launch(self, account: Account | None) -> None:
        deadline, pid_file = time.monotonic() + _START_SECONDS, self.data_dir / "postmaster.pid"
        while True:
            # By its pid file PostgreSQL would take a zombie for a running server.
            pid = _first_number(pid_file)
            if pid is not None and is_zombie(pid):
                pid_file.unlink(missing_ok=True)
            result = self._pg_ctl(account, "start", "-l", str(self.log_file), "-t", "60", timeout=90)
            if result.returncode == 0 and self.is_ready():
                return
            # A killed server's children take a moment to notice and to let go of the shared memory.
            if time.monotonic() > deadline:
                raise DevDBError(
                    f"PostgreSQL does not start on {self.data_dir}: {result.stdout.strip()}.{self._log_tail()}"
                )
            time.sleep(0.2)

    def _pg_ctl(self, account: Account | None, *arguments: str, timeout: int) -> subprocess.CompletedProcess[str]:
        return run([self.bin_dir / "pg_ctl", "-D", self.data_dir, "-w", *arguments], account, timeout)

    def _has_sockets(self, account: Account | None) -> bool:
        """Return whether the directory of the socket exists; ``DevDBError``: it is not the server's own."""
        sockets = socket_dir(self.data_dir)
        if sockets == self.data_dir:
            return True
        return check_directory(sockets, {os.geteuid(), *([account.uid] if account else [])})

    def _end_orphan(self, account: Account | None) -> None:
        """End a server whose data was deleted, but which still holds a socket outside of the data."""
        if not self._has_sockets(account):
            return
        pid = _first_number(socket_dir(self.data_dir) / f".s.PGSQL.{PORT}.lock")
        if pid is None or not is_alive(pid):
            return
        os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + _END_SECONDS
        while is_alive(pid):
            if time.monotonic() > deadline:
                raise DevDBError(f"PostgreSQL (process {pid}) does not end; its data in {self.data_dir} was deleted.")
            time.sleep(0.05)

    def _create_database(self) -> None:
        with self.connect("postgres") as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
            if known is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

    def _log_tail(self) -> str:
        try:
            text = self.log_file.read_text(errors="replace")
        except OSError:
            return ""
        return f"\nThe end of {self.log_file}:\n{text[-_LOG_TAIL:]}"


def default_data_dir(project_dir: Path | str) -> Path:
    """The data directory of a project's development database."""
    return Path(project_dir).resolve() / ".leasequeue" / "pg"


def database(project_dir: Path | str) -> dict[str, Any]:
    """An entry of ``DATABASES``: that of ``DATABASE_URL`` where it is set, else the project's embedded PostgreSQL.

    It starts nothing: ``manage.py leasequeue_devdb start`` does.

    Args:
        project_dir: the project's directory, ``BASE_DIR`` of its settings.

    Raises:
        InvalidDatabaseURL: ``DATABASE_URL`` is no PostgreSQL URL.
    """
    url = os.environ.get("DATABASE_URL")
    return Server(default_data_dir(project_dir)).django_database() if url is None else database_from_url(url)


def socket_dir(data_dir: Path) -> Path:
    """Return the directory of a server's socket: its data, or one in ``/tmp`` if that path is too long."""
    path = str(data_dir)
    if len(f"{path}/.s.PGSQL.{PORT}".encode()) <= _LONGEST_SOCKET and _PLAIN_PATH.fullmatch(path):
        return data_dir
    # Foreseeable, so it is looked at before it is used: see `account.check_directory`.
    return Path("/tmp") / f"leasequeue-{hashlib.sha256(path.encode()).hexdigest()[:16]}"  # nosec  # B108: see above


def initdb_options(version: str) -> list[str]:
    """The options of ``initdb`` for a version of PostgreSQL: the same order and upper case on every machine."""
    options = ["--username", SUPERUSER, "--auth=trust", "--encoding=UTF8"]
    if int(version.partition(".")[0]) >= 17:
        return [*options, "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return [*options, "--no-locale"]


def configuration(data_dir: Path, *, durable: bool) -> str:
    """Make the text of the file that ``postgresql.conf`` includes (``ALTER SYSTEM`` still overrides it)."""
    values = {"unix_socket_directories": str(socket_dir(data_dir)), **_COMMON, **(_DURABLE if durable else _THROWAWAY)}
    lines = [f"{name} = '{value}'" for name, value in values.items()]
    return "\n".join(["# Written by django_leasequeue.devdb at every start; use ALTER SYSTEM for changes.", *lines, ""])


def _first_number(path: Path) -> int | None:
    try:
        return int(path.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None
