"""Dumps, restores and upgrades between throwaway servers, with PostgreSQL's own programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import psycopg

from django_leasequeue.devdb.account import Account, account_for
from django_leasequeue.devdb.server import SUPERUSER, Server, initdb_options
from django_leasequeue.engine import ConnectionExecutor, epoch
from django_leasequeue.engine.topics import log
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually

#: Debian's; the embedded one is newer.
POSTGRES_15 = Path("/usr/lib/postgresql/15/bin")


def age(server: TemporaryServer, transactions: int = 3_000) -> None:
    """Let a server give out transaction ids, so that those of others are lower."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(
            "CREATE PROCEDURE pg_temp.age(n int) LANGUAGE plpgsql AS"
            " 'BEGIN FOR i IN 1..n LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END'"
        )
        connection.execute("CALL pg_temp.age(%s)", [transactions])


def dump(server: TemporaryServer, file: Path, bin_dir: Path | None = None) -> None:
    """Dump a server's database into a file, in pg_dump's own format."""
    program = (bin_dir or server.bin_dir) / "pg_dump"
    subprocess.run([program, "--format=custom", f"--file={file}", server.conninfo()], check=True, timeout=120)


def restore(file: Path, server: TemporaryServer) -> None:
    """Restore a dump into the empty database of another server."""
    program = server.bin_dir / "pg_restore"
    command = [program, "--no-owner", "--exit-on-error", f"--dbname={server.conninfo()}", file]
    subprocess.run(command, check=True, timeout=120)


def upgrade(old: TemporaryServer, new: TemporaryServer) -> None:
    """Let pg_upgrade take a server's files over to the other's version, in the place of the other's; start that."""
    account = account_for(new.data_dir)
    old.stop()
    new.stop()
    work = new.data_dir.with_name("upgrade")
    for directory in (new.data_dir, work):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(mode=0o700)
        _give(account, directory)
    # The old one's: checksums are the default from 18 on.
    options = [*initdb_options("15"), "--no-data-checksums"]
    _as(account, work, new.bin_dir / "initdb", "-D", new.data_dir, *options)
    with (new.data_dir / "postgresql.conf").open("a") as file:
        file.write("\ninclude_if_exists = 'leasequeue.conf'\n")
    programs = ("-b", old.bin_dir, "-B", new.bin_dir, "-d", old.data_dir, "-D", new.data_dir)
    with tempfile.TemporaryDirectory(prefix="lq-", dir="/tmp") as sockets:  # a socket's path is short
        _give(account, Path(sockets))
        _as(account, work, new.bin_dir / "pg_upgrade", *programs, "-U", SUPERUSER, f"--socketdir={sockets}")
    new.start()


def archive(server: TemporaryServer) -> Path:
    """Let a server archive its WAL; return the directory. The server starts anew."""
    directory = server.data_dir.with_name("archive")
    directory.mkdir(mode=0o700)
    _give(account_for(server.data_dir), directory)
    with server.connect("postgres") as connection:
        connection.execute("ALTER SYSTEM SET archive_mode = on")
        connection.execute(f"ALTER SYSTEM SET archive_command = 'cp %p {directory}/%f'")
    server.stop()
    server.start()
    return directory


def base_backup(server: TemporaryServer) -> Server:
    """Take a base backup of a running server, without WAL; return the server that it may become."""
    account, copy = account_for(server.data_dir), server.data_dir.with_name("restored")
    copy.mkdir(mode=0o700)
    _give(account, copy)
    options = ("-D", copy, "-d", server.conninfo("postgres"), "-X", "none", "-c", "fast")
    _as(account, copy, server.bin_dir / "pg_basebackup", *options)
    return Server(copy, durable=False, bin_dir=server.bin_dir)


def switch_wal(server: TemporaryServer) -> None:
    """Begin a new WAL file, and wait until the one before is in the archive."""
    with server.connect("postgres") as connection:
        row = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone()
        assert row is not None
        archived = "SELECT last_archived_wal >= %s FROM pg_stat_archiver"
        eventually(lambda: connection.execute(archived, row).fetchone() == (True,), "the archive has it")


def recover(backup: Server, directory: Path, point: str) -> None:
    """Start a base backup and let it replay the archive up to a restore point of that name; it can be written then."""
    with (backup.data_dir / "postgresql.auto.conf").open("a") as file:
        file.write(f"archive_mode = off\nrestore_command = 'cp {directory}/%f %p'\n")
        file.write(f"recovery_target_name = '{point}'\nrecovery_target_action = promote\n")
    (backup.data_dir / "recovery.signal").touch()
    _give(account_for(backup.data_dir), backup.data_dir / "recovery.signal")
    for left in backup.data_dir.glob(".s.PGSQL.*"):  # the other one's, which has its socket in its data
        left.unlink()
    backup.start()
    with backup.connect("postgres") as connection:
        over = "SELECT NOT pg_is_in_recovery()"
        eventually(lambda: connection.execute(over).fetchone() == (True,), "it recovers")


def _give(account: Account | None, path: Path) -> None:
    if account is not None:
        os.chown(path, account.uid, account.gid)


def _as(account: Account | None, cwd: Path, *command: str | Path) -> None:
    ids = {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=300, check=False, **ids
    )
    assert done.returncode == 0, done.stdout + done.stderr


def note(dsn: str) -> bool:
    """What the reaper does each second."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return bool(ConnectionExecutor(connection).run(log.note_timeline()))


def begin(dsn: str) -> epoch.Begun | None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return epoch.begin(connection)


def note_on(dsn: str, stop: threading.Event) -> None:
    while not stop.wait(0.2):
        note(dsn)
