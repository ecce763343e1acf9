"""Throwaway servers: one per test process, started in a fraction of a second, never left behind."""

import atexit
import fcntl
import hashlib
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Self

from django_leasequeue.devdb.account import (
    DevDBError,
    account_for,
    exclusive,
    open_lock,
    open_path,
    open_programs,
    program_version,
    run,
)
from django_leasequeue.devdb.server import Server, initdb_options, socket_dir
from tests.support.environment import BASE_DIR, child_environment

#: A change in these makes the migrated template anew.
_SCHEMA_SOURCES = (
    "django_leasequeue/migrations", "django_leasequeue/models", "django_leasequeue/sql", "testproject",
)  # fmt: skip


class TemporaryServer(Server):
    """A server with data of its own that is stopped and deleted with the process that made it.

    The data is a copy of a template that is made once. Its directory holds a lock file that this process keeps locked:
    the operating system lets go of it however the process ends, and the next temporary server finds what is not locked,
    stops that server and deletes its data.

    Use it as a context manager, or call :meth:`start` and :meth:`close`. ``home`` is where templates and temporary
    servers live; ``migrated``: its database has the test project's tables, migrated once for each state of the code.
    """

    def __init__(self, home: Path | str, *, migrated: bool = False, bin_dir: Path | None = None) -> None:
        self.home = Path(home).resolve() / "temporary"
        self._directory = self.home / secrets.token_hex(4)
        self._owner: int | None = None
        self._owner_pid = os.getpid()
        self._migrated = migrated
        super().__init__(self._directory / "data", durable=False, bin_dir=bin_dir)

    def start(self) -> bool:
        if self._owner is None:
            self._account()
            with exclusive(self.home / "lock"):
                self._sweep()
                template = self._template()
                self._directory.mkdir()
                self._owner = _try_exclusive(self._directory / "owner")
                atexit.register(self.close)
                # Under the lock, as a suite that runs beside this one may delete the template.
                self._copy(template, self.data_dir)
        return super().start()

    def close(self) -> None:
        """Stop the server and delete its data. Does nothing in a forked child, and nothing the second time."""
        if self._owner is None or os.getpid() != self._owner_pid:
            return
        _delete(self._directory, self)
        os.close(self._owner)
        self._owner = None
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _sweep(self) -> None:
        for directory in self.home.iterdir():
            if not directory.is_dir() or directory.name.startswith("template-"):
                continue
            owner = _try_exclusive(directory / "owner")
            if owner is not None:
                try:
                    _delete(directory, Server(directory / "data", bin_dir=self._bin_dir))
                finally:
                    os.close(owner)

    def _template(self) -> Path:
        programs = program_version(self.bin_dir)
        options = hashlib.sha256(" ".join(initdb_options(programs)).encode()).hexdigest()[:8]
        template = self.home / f"template-{programs}-{options}"
        if not template.exists():
            with self._unfinished(template) as server:
                server.start()
        if not self._migrated:
            return template
        django = f"{template.name}-django{version('django')}"
        migrated = template.with_name(f"{django}-{_schema()}")
        if not migrated.exists():
            for outdated in self.home.glob(f"{django}-*"):
                shutil.rmtree(outdated, ignore_errors=True)
            with self._unfinished(migrated) as server:
                self._copy(template, server.data_dir)
                server.start()
                migrate = [sys.executable, "-m", "django", "migrate", "--verbosity=0"]
                subprocess.run(migrate, env=child_environment(server.url()), check=True)
        return migrated

    @contextmanager
    def _unfinished(self, template: Path) -> Iterator[Server]:
        """Yield a server whose data becomes the template when all went well."""
        server = Server(template.with_suffix(".new"), durable=False, bin_dir=self.bin_dir)
        _delete(server.data_dir, server)
        yield server
        server.stop()
        server.data_dir.rename(template)
        _delete(server.data_dir, server)

    def _copy(self, template: Path, target: Path) -> None:
        account = account_for(template)
        open_programs(account, self.bin_dir)
        target.mkdir(mode=0o700)
        open_path(account, target)
        if account:
            os.chown(target, account.uid, account.gid)
        result = run(["cp", "-R", f"{template}/.", target], account)
        if result.returncode != 0:
            raise DevDBError(f"Could not copy {template} to {target}: {result.stdout.strip()}")


def _schema() -> str:
    digest = hashlib.sha256(f"{version('django')} {version('django-pgtrigger')}".encode())
    files = (file for folder in _SCHEMA_SOURCES for file in (BASE_DIR / folder).rglob("*.*"))
    for file in sorted(file for file in files if file.suffix in (".py", ".sql")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _delete(directory: Path, server: Server) -> None:
    """Stop the server and delete the directory and what it keeps elsewhere."""
    server.stop("immediate")
    shutil.rmtree(directory, ignore_errors=True)
    if (sockets := socket_dir(server.data_dir)) != server.data_dir:
        shutil.rmtree(sockets, ignore_errors=True)
    server.data_dir.with_name(f"{server.data_dir.name}.lock").unlink(missing_ok=True)


def _try_exclusive(path: Path) -> int | None:
    """Take the lock file if it is free: a descriptor that holds it until it is closed; None if another has it."""
    descriptor = open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
